// The forms that add and change a server stream.

import type {ModelEntry, ServerStream, ServerStreamOptions} from '@millrace/client';
import {useEffect, useId, useState} from 'preact/hooks';
import {draftOf, fieldOf, requestOf, type Draft, type Request, type Texts} from './change';
import {Check, Choice, Field, Number, Text, type Fields, type Named} from './fields';
import {useAction, usePolled} from './hooks';
import {server} from './server';

const POLICIES = {'': 'default', latest: 'run the newest', every: 'run every frame'};
const PRIORITIES = {'': 'default', high: 'high', normal: 'normal', low: 'low'};
const DECODE = {'': 'all', reference: 'without unreferenced pictures', key: 'key pictures only'};
const TRANSPORTS = {'': 'default', tcp: 'TCP', udp: 'UDP'};

/** A model, and its version unless any will do. */
interface Version {
  model: string;
  version: string;
}

/** The models that are ready; of one with several ready versions each of these, too. */
function ready(index: ModelEntry[]): Version[] {
  const all = index.filter(m => m.state === 'READY');
  return [...new Set(all.map(m => m.name))].flatMap(model => {
    const versions = all.filter(m => m.name === model).map(m => ({model, version: m.version ?? ''}));
    return [{model, version: ''}, ...(versions.length > 1 ? versions : [])];
  });
}

const titleOf = ({model, version}: Version) => (version ? `${model}, version ${version}` : model);

/** others: the models that the stream gets from other entries. */
function Model({of, index, others}: {of: Fields; index?: ModelEntry[]; others: string[]}) {
  const now = {model: of.get('model'), version: of.get('version')},
    list = ready(index ?? []).filter(v => !others.includes(v.model));
  const at = list.findIndex(v => titleOf(v) === titleOf(now));
  return (
    <Field of={of} name="model" label="Model">
      {attributes => (
        <select
          {...attributes}
          required
          value={at < 0 ? '' : String(at)}
          onChange={e => {
            const chosen = list[parseInt(e.currentTarget.value)];
            if (chosen) of.put({...chosen});
          }}
        >
          {at < 0 && (
            <option value="" disabled={!now.model}>
              {titleOf(now)}
              {index && now.model && ' (not ready)'}
            </option>
          )}
          {list.map((v, i) => (
            <option key={titleOf(v)} value={String(i)}>
              {titleOf(v)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function Policy({of}: {of: Fields}) {
  return (
    <>
      <Choice of={of} name="policy" label="When there are too many frames" options={POLICIES} />
      <Number of={of} name="max_fps" label="Most frames/s of the model" />
      <Number of={of} name="max_age_ms" label="Oldest result, ms" />
      <Number of={of} name="deadline_ms" label="Deadline of a frame, ms" />
      <Number of={of} name="window" label="Frames in flight" />
      <Choice of={of} name="priority" label="Priority" options={PRIORITIES} />
    </>
  );
}

function Source({of}: {of: Fields}) {
  return (
    <fieldset>
      <legend>Source</legend>
      <div class="fields">
        <div class="long">
          <Text of={of} name="source" label="Address" required placeholder="rtsp://HOST/PATH" spellcheck={false} />
        </div>
        <Number of={of} name="fps" label="Most frames/s of the source" />
        <Number of={of} name="width" label="Width of the frames, pixels" />
        <Choice of={of} name="decode" label="Pictures that are decoded" options={DECODE} />
        <Choice of={of} name="rtsp_transport" label="Transport of RTSP" options={TRANSPORTS} />
        <Text of={of} name="poll" label="Time between single pictures" placeholder="such as 1s; empty: a video" />
        <Check of={of} name="loop" label="Start again at the end" />
      </div>
      <p class="soft">
        An http, https, rtsp or rtsps address. Private addresses need <code>sources.allow_private</code>; files and
        devices are named in the configuration.
        {of.get('source').includes('***') &&
          ' The address that is shown has *** in the place of the user name, password or token: ' +
            'it stays as it is unless you write another one.'}
      </p>
    </fieldset>
  );
}

function Sink({of, name, label, has, placeholder}: Named & {has: boolean; placeholder: string}) {
  return (
    <>
      <Text
        of={of}
        name={`sinks.${name}`}
        label={label}
        placeholder={has ? 'set, not shown' : placeholder}
        disabled={of.get(`remove.${name}`) !== ''}
        spellcheck={false}
      />
      {has && <Check of={of} name={`remove.${name}`} label={`Remove the ${label.toLowerCase()}`} />}
    </>
  );
}

function Sinks({of, stream}: {of: Fields; stream?: ServerStream}) {
  const has = stream?.sinks ?? {};
  return (
    <fieldset>
      <legend>Where results go</legend>
      <div class="fields">
        <Sink of={of} name="file" label="File" has={'file' in has} placeholder="a name in sinks.folder" />
        <Text of={of} name="sinks.max_size" label="Largest size of the file" placeholder="such as 64MiB" />
        <Sink of={of} name="webhook" label="Webhook" has={'webhook' in has} placeholder="https://HOST/PATH" />
        <Text
          of={of}
          name="sinks.webhook_secret"
          label="Secret of the webhook"
          type="password"
          autocomplete="new-password"
          placeholder={'webhook' in has ? 'not shown' : ''}
        />
      </div>
      {'socket' in has && <p class="soft">Results also go to a socket, which only the configuration can change.</p>}
    </fieldset>
  );
}

function Models({
  draft,
  fields,
  edit,
}: {
  draft: Draft;
  fields: (place: number) => Fields;
  edit: (models: Draft['models']) => void;
}) {
  const {value: index} = usePolled(() => server.models(), 5000);
  const names = draft.models.map(m => m.now['model'] ?? '');
  return (
    <>
      {draft.models.map((_, i) => (
        <fieldset key={i}>
          <legend>{draft.models.length > 1 ? `Model ${i + 1}` : 'Model'}</legend>
          <div class="fields">
            <Model of={fields(i)} index={index} others={names.filter((_, o) => o !== i)} />
            <Policy of={fields(i)} />
            {draft.models.length > 1 && (
              <button type="button" class="danger" onClick={() => edit(draft.models.toSpliced(i, 1))}>
                Take model {i + 1} out
              </button>
            )}
          </div>
        </fieldset>
      ))}
      <button type="button" onClick={() => edit([...draft.models, {before: {}, now: {}}])}>
        Add another model
      </button>
    </>
  );
}

/** The state of a form, and how it is sent. */
function useForm(stream: ServerStream | undefined, done: () => void) {
  const [draft, setDraft] = useState(() => draftOf(stream)); // what is typed is not overwritten by the next reply
  const {busy, error, field, act} = useAction();
  const [places, setPlaces] = useState<Request['places']>([]),
    id = useId();
  const at = error && fieldOf(field, places),
    shown = document.getElementById(`${id}-${at}`);
  const text = field && error.startsWith(`${field}: `) ? error.slice(field.length + 2) : error;
  const fields = (texts: Texts, prefix: string, put: Fields['put']): Fields => ({
    get: name => texts[name] ?? '',
    put,
    wrong: name => (error && at === prefix + name ? text : ''),
    id: name => `${id}-${prefix}${name}`,
  });
  useEffect(() => {
    if (error) shown?.focus();
  }, [error]);
  const request = requestOf(draft);
  return {
    draft,
    busy,
    request,
    /** The error, unless a field of the form shows it. */
    error: shown ? '' : error,
    edit: (models: Draft['models']) => setDraft(d => ({...d, models})),
    own: fields(draft.now, '', texts => setDraft(d => ({...d, now: {...d.now, ...texts}}))),
    model: (place: number) =>
      fields(draft.models[place]!.now, `${place}.`, texts =>
        setDraft(d => ({
          ...d,
          models: d.models.with(place, {...d.models[place]!, now: {...d.models[place]!.now, ...texts}}),
        })),
      ),
    send: (how: (r: Request) => Promise<ServerStream>) =>
      act(async () => {
        setPlaces(request.places);
        setDraft(draftOf(await how(request)));
        done();
      }),
  };
}

export function Change({of: s, refresh}: {of: ServerStream; refresh: () => void}) {
  const [said, say] = useState('');
  const form = useForm(s, refresh),
    nothing = Object.keys(form.request.body).length === 0;
  const send = (text: string, how: (r: Request) => Promise<ServerStream>) => {
    say('');
    void form.send(how).then(ok => ok && say(text));
  };
  return (
    <form
      class="settings"
      aria-label={`Change ${s.name}`}
      onSubmit={e => {
        e.preventDefault();
        send('Changed.', r => server.changeStream(s.name, r.body));
      }}
    >
      <Models draft={form.draft} fields={form.model} edit={form.edit} />
      <Source of={form.own} />
      <Sinks of={form.own} stream={s} />
      <p class="soft">Empty fields stand for the default. Only what you change is sent.</p>
      <div class="row">
        <button type="submit" class="main" disabled={form.busy || nothing}>
          Apply
        </button>
        {s.origin === 'config' && (
          <button
            type="button"
            disabled={form.busy}
            onClick={() => {
              if (confirm(`Undo all changes of ${s.name}, as the configuration has it?`))
                send('As in the configuration.', () => server.resetStream(s.name));
            }}
          >
            Reset to the configuration
          </button>
        )}
        <span class="soft" role="status">
          {said}
        </span>
      </div>
      {form.error && (
        <p class="message" role="alert">
          {form.error}
        </p>
      )}
    </form>
  );
}

export function Add({done}: {done: () => void}) {
  const form = useForm(undefined, done);
  return (
    <form
      class="card settings"
      aria-label="Add a stream"
      onSubmit={e => {
        e.preventDefault();
        void form.send(r => server.addStream(r.body as ServerStreamOptions));
      }}
    >
      <div class="fields">
        <Text of={form.own} name="name" label="Name" required />
      </div>
      <Models draft={form.draft} fields={form.model} edit={form.edit} />
      <Source of={form.own} />
      <Sinks of={form.own} />
      <button type="submit" class="main" disabled={form.busy}>
        Add
      </button>
      {form.error && (
        <p class="message" role="alert">
          {form.error}
        </p>
      )}
    </form>
  );
}
