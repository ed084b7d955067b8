// Histories, filters and pages.

import assert from 'node:assert/strict';

import { TaskState } from '@a2a-js/sdk';

import * as a2a from './client.js';

export async function history_length({ client }) {
  const context = a2a.freshContext();
  const asked = await a2a.send(client, 'ask which size?', { context, history: 0 });
  assert.deepEqual(asked.history, []);
  const done = await a2a.send(client, 'large', { task: asked.id, history: 2 });
  assert.deepEqual(done.history.map((m) => a2a.texts(m)[0]), ['which size?', 'large']);
  for (const [length, count] of [[undefined, 3], [0, 0], [1, 1], [2, 2], [50, 3]]) {
    const seen = await a2a.get(client, done.id, length);
    assert.equal(seen.history.length, count, `historyLength ${length}`);
  }
  for (const [historyLength, count] of [[undefined, 0], [0, 0], [1, 1], [50, 3]]) {
    const page = await a2a.list(client, { contextId: context, historyLength });
    assert.equal(page.tasks[0].history.length, count, `listed with historyLength ${historyLength}`);
  }
}

export async function list_filters({ client }) {
  const context = a2a.freshContext();
  const first = await a2a.send(client, 'one', { context });
  const asked = await a2a.send(client, 'ask two?', { context });
  const last = await a2a.send(client, 'three', { context });
  const newestFirst = [last, asked, first].map((task) => task.id);
  const found = async (filters) => {
    const page = await a2a.list(client, { contextId: context, ...filters });
    assert.equal(page.totalSize, page.tasks.length);
    assert.equal(page.nextPageToken, '');
    return page.tasks;
  };
  const ids = async (filters) => (await found(filters)).map((task) => task.id);

  assert.deepEqual(await ids({}), newestFirst);
  assert.deepEqual(await ids({ status: 'TASK_STATE_INPUT_REQUIRED' }), [asked.id]);
  assert.deepEqual(await ids({ status: 'TASK_STATE_COMPLETED' }), [last.id, first.id]);
  assert.deepEqual(await ids({ status: 'TASK_STATE_FAILED' }), []);
  // At that time or after it.
  const time = asked.status.timestamp;
  const late = [last, asked, first].filter((task) => task.status.timestamp >= time);
  assert.deepEqual(await ids({ statusTimestampAfter: time }), late.map((task) => task.id));
  const both = { statusTimestampAfter: time, status: 'TASK_STATE_INPUT_REQUIRED' };
  assert.deepEqual(await ids(both), [asked.id]);
  assert.deepEqual(await ids({ statusTimestampAfter: '2999-01-01T00:00:00Z' }), []);

  const [lean] = await found({ status: 'TASK_STATE_COMPLETED' });
  assert.deepEqual([lean.artifacts, lean.history], [[], []]);
  const [whole] = await found({
    status: 'TASK_STATE_COMPLETED',
    includeArtifacts: true,
    historyLength: 10,
  });
  assert.deepEqual(whole, last);
  assert.equal(whole.status.state, TaskState.TASK_STATE_COMPLETED);
  // A walk over everything meets them, too.
  assert.ok((await a2a.list(client, {})).totalSize >= 3);
}

export async function list_walk({ client }) {
  const contextId = a2a.freshContext();
  const wanted = [];
  for (let n = 0; n < 13; n += 1) {
    wanted.unshift((await a2a.send(client, `task ${n}`, { context: contextId })).id);
  }
  const walks = [];
  for (const pageSize of [1, 5, 13, 100, undefined]) {
    const ids = [];
    let pageToken = '';
    do {
      const page = await a2a.list(client, { contextId, pageSize, pageToken });
      assert.equal(page.totalSize, wanted.length);
      assert.equal(page.pageSize, pageSize ?? 50);
      assert.ok(page.tasks.length > 0, 'a page of a walk is never empty');
      ids.push(...page.tasks.map((task) => task.id));
      pageToken = page.nextPageToken;
    } while (pageToken);
    walks.push(ids);
  }
  for (const walk of walks) assert.deepEqual(walk, walks[0]);
  assert.deepEqual([...walks[0]].sort(), [...wanted].sort());
}
