// The frame that the user paused on.

import type {Result} from '@millrace/client';
import {useState} from 'preact/hooks';
import {usePolled} from '../hooks';
import {server} from '../server';
import {TraceDetails} from '../traces';
import {Waterfall, type Step} from '../waterfall';

/** The way of a frame: the page's clock, with the server's steps in between. */
function steps({timings: t, batch}: Result): Step[] {
  const out: Step[] = [];
  let at = 0;
  const add = (name: string, kind: Step['kind'], duration: number | undefined, note = '') => {
    if (duration === undefined) return;
    out.push({name, kind, start: at, duration, note});
    at += duration;
  };
  add('capture', 'client', t.wait, 'until the page could encode it');
  add('encode', 'client', t.encode);
  add('network', 'network', t.upload, 'to the server; an estimate from both clocks');
  add('queue', 'server', t.queue, 'until it was bound to a batch');
  add('prepare', 'server', t.prepare, 'decoding, resizing');
  add('model', 'model', t.run, `a batch of ${batch} rows`);
  add('results', 'server', t.finish, 'stages after the model, and coding');
  add('reply', 'network', t.download, 'back to the page; an estimate from both clocks');
  return out;
}

const MAX_ITEMS = 64; // of a list in the JSON that is shown

/** JSON of a result, with long lists cut. */
export function json(result: Result): string {
  const {seq, model, version, width, height, batch, outputs, parameters, timings, traceId} = result;
  return JSON.stringify(
    {seq, model, version, width, height, batch, traceId, timings, parameters, outputs},
    (_, v) => {
      const list = ArrayBuffer.isView(v) ? Array.from(v as Uint8Array) : v;
      if (typeof list === 'bigint') return Number(list);
      return Array.isArray(list) && list.length > MAX_ITEMS && typeof list[0] !== 'object'
        ? [...list.slice(0, MAX_ITEMS), `… ${list.length - MAX_ITEMS} more`]
        : list;
    },
    1,
  );
}

export function Picked({of: result}: {of: Result}) {
  const [copied, setCopied] = useState(false);
  return (
    <section class="card" id="picked" aria-label="The frame">
      <h3>
        Frame {result.seq} of {result.model}
        {result.version && ` ${result.version}`}: {result.timings.total.toFixed(1)} ms from capture to reply,{' '}
        {(result.bytes / 1000).toFixed(1)} KB, a batch of {result.batch || 1}
      </h3>
      <Waterfall steps={steps(result)} label={`Steps of frame ${result.seq}`} />
      {result.traceId && (
        <>
          <p class="row">
            <span>
              Trace{' '}
              <a id="trace-link" href={`#/traces?id=${result.traceId}`}>
                <code>{result.traceId}</code>
              </a>
            </span>
            <button
              type="button"
              onClick={async () => {
                await navigator.clipboard.writeText(result.traceId);
                setCopied(true);
              }}
            >
              {copied ? 'Copied' : 'Copy'}
            </button>
          </p>
          <OfServer id={result.traceId} />
        </>
      )}
    </section>
  );
}

/** What the server keeps of the frame, if it does. */
function OfServer({id}: {id: string}) {
  const {value: trace, failed} = usePolled(() => server.trace(id), 60_000, id);
  if (trace)
    return (
      <div id="kept">
        <TraceDetails of={trace} />
      </div>
    );
  return failed ? <p class="soft">The server has not kept this frame: {failed}</p> : null;
}
