// Uploads of inputs of tasks. They go on while another view is open.

import {REST, type Task, type TaskOptions} from '@millrace/client';
import {useEffect, useState} from 'preact/hooks';
import {describe, loggedOut, root} from './server';

/** An input on the way to the server. */
export interface Upload {
  id: number;
  model: string;
  file: File;
  options: TaskOptions;
  state: 'waiting' | 'sending' | 'stored' | 'failed';
  /** Sent bytes. */
  sent: number;
  /** Why the upload failed. */
  error: string;
  task?: Task;
}

let all: Upload[] = [],
  next = 1;
const stops = new Map<number, AbortController>(),
  watchers = new Set<() => void>();

const tell = () => {
  for (const f of watchers) f();
};

function change(id: number, to: Partial<Upload>): void {
  all = all.map(u => (u.id === id ? {...u, ...to} : u));
  tell();
}

/**
 * A fetch that reports how many bytes of the body are sent. XMLHttpRequest alone reports the number, and reads a File
 * piece by piece.
 */
const reporting =
  (report: (sent: number) => void): typeof fetch =>
  (input, init = {}) =>
    new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      request.open(init.method ?? 'GET', String(input));
      for (const [name, value] of new Headers(init.headers)) request.setRequestHeader(name, value);
      request.upload.onprogress = e => report(e.loaded);
      request.onload = () => {
        if (request.status === 401) loggedOut();
        const headers = new Headers({'Retry-After': request.getResponseHeader('Retry-After') ?? ''});
        done(new Response(request.response, {status: request.status, headers}));
      };
      request.onerror = request.onabort = () => fail(new TypeError('no answer'));
      init.signal?.addEventListener('abort', () => request.abort());
      request.send(init.body as Blob);
    });

/** Sends the waiting uploads, one after the other: each uses the whole connection. */
async function send(): Promise<void> {
  const u = all.find(u => u.state === 'waiting');
  if (!u || all.some(u => u.state === 'sending')) return;
  const stop = new AbortController();
  stops.set(u.id, stop);
  change(u.id, {state: 'sending', sent: 0, error: ''});
  try {
    const rest = new REST(root, {fetch: reporting(sent => change(u.id, {sent}))});
    change(u.id, {state: 'stored', task: await rest.submitTask(u.model, u.file, u.options, stop.signal)});
  } catch (e) {
    change(u.id, {state: 'failed', error: await why(u.file, e)});
  }
  stops.delete(u.id);
  void send();
}

/** A file that was moved or is a folder fails as if the server were gone. */
async function why(file: File, e: unknown): Promise<string> {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    return 'The browser cannot read the file. Is it a folder, or was it moved?';
  }
  return describe(e);
}

/** Uploads a file as a new task of the model. */
export function upload(model: string, file: File, options: TaskOptions): number {
  const id = next++;
  all = [...all, {id, model, file, options, state: 'waiting', sent: 0, error: ''}];
  tell();
  void send();
  return id;
}

/** Sends a failed upload again. */
export function again(id: number): void {
  change(id, {state: 'waiting'});
  void send();
}

/** Forgets an upload, and stops it if it has not ended. */
export function dismiss(id: number): void {
  all = all.filter(u => u.id !== id);
  stops.get(id)?.abort();
  tell();
}

window.addEventListener('beforeunload', e => {
  if (all.some(u => u.state === 'waiting' || u.state === 'sending')) e.preventDefault();
});

export function useUploads(): Upload[] {
  const [uploads, setUploads] = useState(all);
  useEffect(() => {
    const changed = () => setUploads(all);
    changed();
    watchers.add(changed);
    return () => void watchers.delete(changed);
  }, []);
  return uploads;
}
