// The form that submits tasks, and the uploads of their inputs.

import type {Task, TaskOptions} from '@millrace/client';
import {useEffect, useId, useRef, useState} from 'preact/hooks';
import type {Texts} from './change';
import {Check, Text, type Fields} from './fields';
import {usePolled} from './hooks';
import {bytes} from './parts';
import {server} from './server';
import {again, dismiss, upload, useUploads, type Upload} from './uploads';

/** A field of the browser's time, as the server reads it. */
const time = (local?: string) => (local ? new Date(local).toISOString() : undefined);

const whole = (text?: string) => (text ? Number(text) : undefined);

const isVideo = (f: File) => f.type.startsWith('video/');

/** The options that the user has set for a file. */
function optionsOf(texts: Texts, f: File): TaskOptions {
  return JSON.parse(
    JSON.stringify({
      version: texts['version'] || undefined,
      priority: whole(texts['priority']),
      attempts: whole(texts['attempts']),
      not_before: time(texts['not_before']),
      expires: time(texts['expires']),
      annotate: texts['annotate'] && isVideo(f) ? 'mp4' : undefined,
    }),
  );
}

/**
 * The models of the server, and a field for another model: a model of a consumer on another host, or a model that is
 * loaded later.
 */
function Model({name, names, put}: {name: string; names?: string[]; put: (name: string) => void}) {
  const [another, setAnother] = useState(false),
    other = another || (names !== undefined && !names.includes(name));
  return (
    <>
      <label>
        Model{' '}
        <select
          id="submit-model"
          value={other ? '' : name}
          onChange={e => {
            setAnother(e.currentTarget.value === '');
            put(e.currentTarget.value);
          }}
        >
          {names?.map(n => (
            <option key={n}>{n}</option>
          ))}
          <option value="">another model</option>
        </select>
      </label>
      {other && (
        <label>
          Name of the model{' '}
          <input required value={name} spellcheck={false} onInput={e => put(e.currentTarget.value.trim())} />
        </label>
      )}
    </>
  );
}

export function Submit({
  files,
  take,
  over,
  model: first,
  done,
}: {
  files: File[];
  take: (files: File[]) => void;
  over: boolean;
  model: string;
  done: () => void;
}) {
  const {value: index} = usePolled(() => server.models(), 5000),
    names = index && [...new Set(index.map(m => m.name))];
  const [chosen, setChosen] = useState(first || undefined),
    model = chosen ?? names?.[0] ?? '';
  const [texts, setTexts] = useState<Texts>({}),
    id = useId();
  const fields: Fields = {
    get: name => texts[name] ?? '',
    put: more => setTexts(t => ({...t, ...more})),
    wrong: () => '',
    id: name => `${id}-${name}`,
  };
  return (
    <form
      class="card settings"
      aria-label="Submit a task"
      onSubmit={e => {
        e.preventDefault();
        for (const f of files) upload(model, f, {name: f.name, ...optionsOf(texts, f)});
        done();
      }}
    >
      <div class="row">
        <Model name={model} names={names} put={setChosen} />
      </div>
      <div class={`drop${over ? ' over' : ''}`}>
        <label>
          Drop files here, or choose them:{' '}
          <input
            type="file"
            multiple
            onChange={e => {
              take([...files, ...(e.currentTarget.files ?? [])]);
              e.currentTarget.value = '';
            }}
          />
        </label>
        <p class="soft">
          Each file becomes a task: a picture, a video, a request in JSON, or what the model takes, such as a zip.
        </p>
        {files.length > 0 && (
          <ul class="files" aria-label="Files">
            {files.map((f, i) => (
              <li key={i}>
                <span>
                  {f.name} <small class="soft">{bytes(f.size)}</small>
                </span>
                <button type="button" aria-label={`Leave out ${f.name}`} onClick={() => take(files.toSpliced(i, 1))}>
                  Leave out
                </button>
              </li>
            ))}
          </ul>
        )}
      </div>
      {files.some(isVideo) && (
        <Check
          of={fields}
          name="annotate"
          label="Results of videos as an MP4 with the results drawn, not as JSON lines"
        />
      )}
      <details>
        <summary>Options</summary>
        <div class="fields">
          <Text
            of={fields}
            name="priority"
            label="Priority, -100 to 100"
            type="number"
            min="-100"
            max="100"
            placeholder="0"
          />
          <Text of={fields} name="not_before" label="Not before" type="datetime-local" />
          <Text of={fields} name="expires" label="Expires, unless begun" type="datetime-local" />
          <Text of={fields} name="attempts" label="Attempts" type="number" min="1" max="100" placeholder="3" />
          <Text of={fields} name="version" label="Version of the model" placeholder="any" />
        </div>
      </details>
      <button type="submit" class="main" disabled={files.length === 0 || !model}>
        Submit{files.length > 1 ? ` ${files.length} tasks` : ''}
      </button>
    </form>
  );
}

/** Uploads that run or have failed. stored: of a single upload, its task is shown. */
export function Uploads({stored}: {stored: (t: Task) => void}) {
  const uploads = useUploads(),
    told = useRef(new Set(uploads.filter(u => u.state === 'stored').map(u => u.id)));
  useEffect(() => {
    for (const u of uploads) {
      if (u.state !== 'stored' || told.current.has(u.id)) continue;
      told.current.add(u.id);
      if (uploads.length === 1 && u.task) {
        stored(u.task);
        dismiss(u.id);
      }
    }
  }, [uploads]);
  if (uploads.length === 0) return null;
  return (
    <section class="card" aria-label="Uploads" id="uploads">
      <ul class="files">
        {uploads.map(u => (
          <Sending key={u.id} of={u} />
        ))}
      </ul>
    </section>
  );
}

function Sending({of: u}: {of: Upload}) {
  const over = u.state === 'stored' || u.state === 'failed';
  return (
    <li data-upload={u.state}>
      <span>
        {u.file.name}{' '}
        <small class="soft">
          {u.state === 'sending' ? `${bytes(u.sent)} of ` : ''}
          {bytes(u.file.size)} for {u.model}
        </small>
      </span>
      {u.state === 'sending' && (
        <progress aria-label={`Upload of ${u.file.name}`} max={Math.max(1, u.file.size)} value={u.sent} />
      )}
      {u.state === 'waiting' && <span class="soft">waits for the upload before</span>}
      {u.state === 'failed' && (
        <span class="wrong" role="alert">
          {u.error}
        </span>
      )}
      <span class="row">
        {u.task && <a href={`#/tasks?id=${u.task.id}`}>Show</a>}
        {u.state === 'failed' && (
          <button type="button" aria-label={`Send again ${u.file.name}`} onClick={() => again(u.id)}>
            Send again
          </button>
        )}
        <button
          type="button"
          aria-label={`${over ? 'Dismiss' : 'Stop'} the upload of ${u.file.name}`}
          onClick={() => dismiss(u.id)}
        >
          {over ? 'Dismiss' : 'Stop'}
        </button>
      </span>
    </li>
  );
}
