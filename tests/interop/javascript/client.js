// What the scenarios share: a client of the SDK on one binding, and what they ask of answers.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  SendMessageRequest,
  SubscribeToTaskRequest,
  TaskState,
} from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const TRANSPORTS = {
  GRPC: GrpcTransportFactory,
  JSONRPC: JsonRpcTransportFactory,
  'HTTP+JSON': RestTransportFactory,
};

/** A client for the agent whose card is under `baseUrl`, which knows one binding alone. */
export async function connect(baseUrl, binding) {
  const factory = new ClientFactory({ transports: [new TRANSPORTS[binding]()] });
  const client = await factory.createFromUrl(baseUrl);
  assert.equal(client.transport.protocolName, binding);
  return client;
}

/** A context that no other scenario has. */
export const freshContext = () => `context-${randomUUID()}`;

/** A request that sends `content`, a text or a list of parts in JSON, as the user. */
export function sending(content, { task, context, atOnce, history, tenant, metadata } = {}) {
  const parts = typeof content === 'string' ? [{ text: content }] : content;
  return SendMessageRequest.fromJSON({
    tenant,
    message: {
      messageId: randomUUID(),
      role: 'ROLE_USER',
      parts,
      taskId: task,
      contextId: context,
      metadata,
    },
    configuration: { returnImmediately: atOnce ?? false, historyLength: history },
  });
}

export const send = (client, content, options) => client.sendMessage(sending(content, options));
export const stream = (client, content, options, call) =>
  client.sendMessageStream(sending(content, options), call);
export const get = (client, id, historyLength, tenant) =>
  client.getTask(GetTaskRequest.fromJSON({ id, historyLength, tenant }));
export const cancel = (client, id) => client.cancelTask(CancelTaskRequest.fromJSON({ id }));
export const list = (client, filters) => client.listTasks(ListTasksRequest.fromJSON(filters));
export const subscribe = (client, id) =>
  client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }));

/** The name of the task's state, without its prefix. */
export const state = (task) => TaskState[task.status.state].replace('TASK_STATE_', '');
/** Whether the answer to a send is a message, and no task. */
export const isMessage = (answer) => 'messageId' in answer;

/** The texts of a message or artifact, in order. */
export const texts = ({ parts }) => parts.map((part) => part.content.value);
/** The texts of the task's one artifact. */
export function artifactTexts(task) {
  assert.equal(task.artifacts.length, 1);
  return texts(task.artifacts[0]);
}

/** Looks again and again until `look` finds something. */
async function eventually(what, look) {
  const deadline = Date.now() + 30_000;
  do {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  } while (Date.now() < deadline);
  throw new Error(`in 30 seconds there was no ${what}`);
}

/** Reads the task until it is in the state `wanted`. */
export function until(client, id, wanted) {
  return eventually(`${wanted} task ${id}`, async () => {
    const task = await get(client, id);
    return state(task) === wanted ? task : undefined;
  });
}

/** The one task of a context, as soon as it is listed. */
export function listed(client, contextId) {
  const look = async () => (await list(client, { contextId })).tasks[0];
  return eventually(`task in ${contextId}`, look);
}

/** What a stream tells of a task: its snapshot with every update applied. */
export class Told {
  constructor(first) {
    assert.equal(first.payload.$case, 'task', 'a stream of a task begins with the task');
    this.task = structuredClone(first.payload.value);
    this.states = [state(this.task)];
    this.ended = false;
  }

  add({ payload: { $case: kind, value } }) {
    assert.ok(!this.ended, `${kind} after the last item`);
    assert.equal(value.taskId, this.task.id);
    assert.equal(value.contextId, this.task.contextId);
    if (kind === 'statusUpdate') {
      this.task.status = value.status;
      this.states.push(state(this.task));
      return;
    }
    assert.equal(kind, 'artifactUpdate');
    const known = this.task.artifacts.find((a) => a.artifactId === value.artifact.artifactId);
    if (value.append) {
      known.parts.push(...value.artifact.parts);
    } else {
      assert.ok(!known, 'an artifact came twice');
      this.task.artifacts.push(structuredClone(value.artifact));
    }
  }

  /** Everything that is left of the stream. */
  async rest(items) {
    for (let item = await items.next(); !item.done; item = await items.next()) this.add(item.value);
    return this;
  }

  /** The task told is the task stored. */
  async equals(client) {
    const stored = await get(client, this.task.id);
    assert.deepEqual(this.task.status, stored.status);
    assert.deepEqual(this.task.artifacts, stored.artifacts);
    return stored;
  }
}

/** The first item of a stream, and the stream. */
export async function first(items) {
  const { value, done } = await items.next();
  assert.ok(!done, 'the stream ended without an item');
  return [value, items];
}

/** All that a stream of a task tells, to its end. */
export async function told(items) {
  const [item] = await first(items);
  return new Told(item).rest(items);
}
