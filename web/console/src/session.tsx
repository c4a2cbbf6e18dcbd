// Who uses the console, where the server's clients need keys. A key that is typed in goes to the server in a header,
// and the server sets a cookie with the key, which this page cannot read.

import {useEffect, useState} from 'preact/hooks';
import {loggedOut, offer, onLogout, root} from './server';

/** Who uses the console. */
export interface Who {
  /** The server's clients need keys. */
  guarded: boolean;
  /** Of the key that the browser has, if it has a valid one; the server's own key has no name. */
  name?: string;
}

/** The name of a valid key, or why there is none. */
interface Answer {
  name?: string;
  why: string;
}

async function ask(path: string, init: RequestInit = {}): Promise<Answer> {
  const reply = await fetch(root + path, init),
    body = await reply.json().catch(() => ({}));
  return reply.ok
    ? {name: body.user_id ?? '', why: ''}
    : {why: body.error ?? `The server answers with status ${reply.status}.`};
}

/** Whose key is in the cookie. */
const status = () => ask('/session_status');

/** Asks for a login when the server no longer takes the cookie. */
export async function check(): Promise<void> {
  if ((await offer()).login && (await status()).name === undefined) loggedOut();
}

/** Who uses the console; undefined until that is known. */
export function useWho(): {who?: Who; setName: (name: string) => void} {
  const [who, setWho] = useState<Who>();
  useEffect(() => {
    offer()
      .then(async ({login}) => setWho({guarded: login, name: login ? (await status()).name : undefined}))
      .catch(() => setWho({guarded: false})); // the views say that there is no answer
    return onLogout(() => setWho({guarded: true}));
  }, []);
  return {who, setName: name => setWho({guarded: true, name})};
}

/** HTTP Basic (RFC 7617), in UTF-8. */
const basic = (name: string, password: string): string =>
  `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${name}:${password}`)))}`;

export function Login({done}: {done: (name: string) => void}) {
  const [key, setKey] = useState(''),
    [user, setUser] = useState(''),
    [password, setPassword] = useState('');
  const [busy, setBusy] = useState(false),
    [error, setError] = useState(''),
    [passwords, setPasswords] = useState(false);
  useEffect(() => {
    offer()
      .then(o => setPasswords(o.passwords))
      .catch(() => {});
  }, []);
  const login = async (path: string, authorization: () => string) => {
    setBusy(true);
    try {
      const {name, why} = await ask(path, {method: 'POST', headers: {Authorization: authorization()}});
      setError(why);
      if (name !== undefined) done(name);
    } catch {
      setError('The server does not answer, or this cannot be a key.');
    } finally {
      setBusy(false);
    }
  };
  return (
    <main id="login" aria-label="Log in">
      <h2>Log in</h2>
      {passwords && (
        <form
          onSubmit={e => {
            e.preventDefault();
            void login('/session_login', () => basic(user.trim(), password));
          }}
        >
          <label>
            Name{' '}
            <input
              id="user"
              autocomplete="username"
              required
              value={user}
              onInput={e => setUser(e.currentTarget.value)}
            />
          </label>
          <label>
            Password{' '}
            <input
              type="password"
              id="password"
              autocomplete="current-password"
              required
              value={password}
              onInput={e => setPassword(e.currentTarget.value)}
            />
          </label>
          <button type="submit" class="main" disabled={busy}>
            Log in
          </button>
        </form>
      )}
      <p class="soft">
        {passwords
          ? 'Or with a key, which whoever runs this server makes'
          : 'The clients of this server need a key. Whoever runs it makes one'}{' '}
        with: millrace keys add FILE NAME --role infer,watch
      </p>
      <form
        onSubmit={e => {
          e.preventDefault();
          void login('/login', () => `Bearer ${key.trim()}`);
        }}
      >
        <label>
          Key{' '}
          <input
            type="password"
            id="key"
            autocomplete="off"
            required
            value={key}
            onInput={e => setKey(e.currentTarget.value)}
          />
        </label>
        <button type="submit" class="main" disabled={busy}>
          Log in
        </button>
      </form>
      {error && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
    </main>
  );
}

/** Whose key it is, and the way out. */
export function User({name}: {name: string}) {
  return (
    <span class="row">
      <span id="who">
        <span class="hidden">Logged in as </span>
        {name || 'api_key'}
      </span>
      <button
        type="button"
        id="logout"
        onClick={() => void fetch(`${root}/logout`, {method: 'POST'}).finally(loggedOut)}
      >
        Log out
      </button>
    </span>
  );
}
