// Runs every scenario of ../README.md with the official JavaScript SDK.
//
//     node run.js BASE_URL BINDING...

import * as client from './client.js';
import * as conversations from './conversations.js';
import * as errors from './errors.js';
import * as listings from './listings.js';

const scenarios = { ...conversations, ...listings, ...errors };
const [baseUrl, ...bindings] = process.argv.slice(2);
const only = process.env.ONLY?.split(',');

async function runAll(binding) {
  const given = { binding, client: await client.connect(baseUrl, binding) };
  for (const [name, scenario] of Object.entries(scenarios)) {
    if (only && !only.includes(name)) continue;
    try {
      await scenario(given);
    } catch (error) {
      throw new Error(`${binding} ${name}`, { cause: error });
    }
    console.log(`ok ${binding} ${name}`);
  }
}

try {
  await Promise.all(bindings.map(runAll));
} catch (error) {
  console.error(error);
  process.exit(1);
}
process.exit(0);
