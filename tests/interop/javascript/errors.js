// Every failure that a caller can bring about is the SDK's own kind of error.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { GetExtendedAgentCardRequest, TaskPushNotificationConfig } from '@a2a-js/sdk';
import * as errors from '@a2a-js/sdk/errors';

import * as a2a from './client.js';
import { fault } from './faults.js';

const ABSENT = '01890a5d-ac96-774b-bcce-b302099a8057';

/** Awaits `call`, which must throw `kind`, and name `field` if one is given. */
async function fails(kind, call, field) {
  let error;
  try {
    await call;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `no ${kind.name} was thrown`);
  assert.ok(error instanceof kind, `${error.stack} is not a ${kind.name}`);
  assert.ok(error.message, 'an error has a text for people');
  if (field) assert.ok(details(error).includes(field), `${error.message} does not name ${field}`);
  return error;
}

/** Where an error of each binding keeps the violated fields. */
function details(error) {
  if (error.transport === 'grpc') return error.statusDetailsBin.toString('latin1');
  if (error.transport === 'jsonrpc') return JSON.stringify(error.data);
  const kept = { ...error, headers: undefined };
  fault('js-rest-field-violations', !JSON.stringify(kept).includes('BadRequest'));
  return error.message;
}

/** The failure of a stream, which comes before any item. */
async function ofStream(items) {
  for await (const item of items) assert.fail(`an item came: ${JSON.stringify(item)}`);
}

export async function error_task_not_found({ client }) {
  const calls = [
    () => a2a.get(client, ABSENT),
    () => a2a.get(client, 'made up'),
    () => a2a.cancel(client, ABSENT),
    () => a2a.send(client, 'x', { task: ABSENT }),
  ];
  const said = new Set();
  for (const call of calls) {
    said.add((await fails(errors.TaskNotFoundError, call())).message);
  }
  assert.equal(said.size, 1, `one text for all: ${[...said]}`);
}

export async function error_task_not_found_streaming({ client }) {
  await fails(errors.TaskNotFoundError, ofStream(a2a.subscribe(client, ABSENT)));
  await fails(errors.TaskNotFoundError, ofStream(a2a.stream(client, 'x', { task: ABSENT })));
}

export async function error_task_not_cancelable({ client }) {
  const done = await a2a.send(client, 'hello');
  await fails(errors.TaskNotCancelableError, a2a.cancel(client, done.id));
}

export async function error_unsupported_operation({ client }) {
  const done = await a2a.send(client, 'hello');
  const more = a2a.send(client, 'more', { task: done.id });
  await fails(errors.UnsupportedOperationError, more);
}

export async function error_unsupported_operation_streaming({ client }) {
  const done = await a2a.send(client, 'hello');
  await fails(errors.UnsupportedOperationError, ofStream(a2a.subscribe(client, done.id)));
  const more = a2a.stream(client, 'more', { task: done.id });
  await fails(errors.UnsupportedOperationError, ofStream(more));
}

export async function error_invalid_params({ client }) {
  const kind = errors.RequestMalformedError;
  const asked = await a2a.send(client, 'ask what?');
  await fails(kind, a2a.get(client, asked.id, -1), 'history_length');
  await fails(kind, a2a.send(client, 'x', { history: -1 }), 'configuration.history_length');
  await fails(kind, a2a.send(client, []), 'message.parts');
  const elsewhere = a2a.send(client, 'x', { task: asked.id, context: a2a.freshContext() });
  await fails(kind, elsewhere, 'message.context_id');
  for (const pageSize of [-1, 101]) {
    await fails(kind, a2a.list(client, { pageSize }), 'page_size');
  }
  for (const pageToken of ['0', '50', 'made up']) {
    await fails(kind, a2a.list(client, { pageToken }), 'page_token');
  }
  const both = a2a.list(client, { pageSize: 101, historyLength: -1 });
  const error = await fails(kind, both, 'page_size');
  assert.ok(details(error).includes('history_length'), 'all that is wrong is told together');
}

export async function error_content_type({ client }) {
  const picture = [{ raw: 'AAEC', mediaType: 'image/png' }];
  await fails(errors.ContentTypeNotSupportedError, a2a.send(client, picture));
}

export async function error_push_not_supported({ client }) {
  const kind = errors.PushNotificationNotSupportedError;
  const config = TaskPushNotificationConfig.fromJSON({
    taskId: ABSENT,
    url: 'https://example.com/hook',
  });
  // The client itself refuses by the card; its transport asks the server.
  const refused = async () => client.createTaskPushNotificationConfig(config);
  await fails(kind, refused());
  const options = { serviceParameters: { 'A2A-Version': '1.0' } };
  await fails(kind, client.transport.createTaskPushNotificationConfig(config, options));
  const request = a2a.sending('x');
  request.configuration.taskPushNotificationConfig = config;
  await fails(kind, client.sendMessage(request));
}

export async function error_extended_card({ client }) {
  const request = GetExtendedAgentCardRequest.fromJSON({});
  const options = { serviceParameters: { 'A2A-Version': '1.0' } };
  const kind = errors.UnsupportedOperationError;
  await fails(kind, client.transport.getExtendedAgentCard(request, options));
}

export async function error_version({ client }) {
  const request = a2a.sending('x');
  const kind = errors.VersionNotSupportedError;
  for (const serviceParameters of [{}, { 'A2A-Version': '0.3' }, { 'A2A-Version': '9.9' }]) {
    await fails(kind, client.transport.sendMessage(request, { serviceParameters }));
  }
}

export async function tenants({ client }) {
  const tenant = `tenant-${randomUUID()}`;
  const task = await a2a.send(client, 'hello', { tenant });
  assert.equal((await a2a.get(client, task.id, undefined, tenant)).id, task.id);
  assert.equal((await a2a.list(client, { tenant })).totalSize, 1);
  await fails(errors.TaskNotFoundError, a2a.get(client, task.id));
}
