// What the views ask of the server, and the page's texts for its errors.

import {MillraceError, REST} from '@millrace/client';

/** An error with a message for the user. */
export class UserError extends Error {}

const outs = new Set<() => void>();

/** Tells the page that the user has to log in. */
export function loggedOut(): void {
  for (const f of [...outs]) f();
}

/** Calls f when the user has to log in, until the function that it returns is called. */
export function onLogout(f: () => void): () => void {
  outs.add(f);
  return () => void outs.delete(f);
}

/**
 * The address of the server, without a slash at its end: the folder above the page, which is not the
 * root of its host where a proxy passes a path on to the server.
 */
export const root = new URL('..', location.href).href.replace(/[?#].*$/, '').replace(/\/$/, '');

export const server = new REST(root, {
  fetch: async (input, init) => {
    const reply = await fetch(input, init);
    if (reply.status === 401) loggedOut();
    return reply;
  },
});

// What the user, or the operator of the server, can do about an error code.
const ADVICE: Record<string, string> = {
  invalid_argument: 'Does this model take pictures? Choose another one.',
  unsupported: 'Does this model take pictures? Choose another one.',
  not_found: 'Load the model, or choose another one.',
  unloaded: 'Load it again, or choose another one.',
  unavailable: 'Wait until it is ready; the server’s log says why it is not.',
  overloaded: 'Stop other streams, or give the model more instances.',
  too_large: 'Choose a smaller picture, or raise the limit of the server that the message names.',
  timeout: 'The model takes longer than its limits.run allows.',
  internal: 'The server’s log says more.',
  unauthenticated: 'Log in, and press Start again.',
  permission_denied:
    'Log in with a key that has the role that the message names, ' +
    'or add this page’s name to hosts, or its origin to origins, of the server.',
};

/** The text of a stream's error: message, code, and what to do. */
export const explain = ({code, message}: MillraceError): string => `${message} (${code}). ${ADVICE[code] ?? ''}`.trim();

/** Whether the server could not be reached, or did not answer as one. */
export const unreachable = (e: unknown): boolean =>
  e instanceof MillraceError && e.code === 'unavailable' && e.cause !== undefined;

/** The text of any error, for the user. */
export function describe(e: unknown): string {
  if (unreachable(e)) return 'The server does not answer. Is it still running?';
  return e instanceof MillraceError ? `${e.message} (${e.code})` : (e as Error).message;
}

interface Offer {
  clip: boolean;
  login: boolean;
  /** Users log in with a name and a password. */
  passwords: boolean;
  /** The address of the page is one at which the server is managed. */
  manage: boolean;
}

let offered: Promise<Offer> | undefined;

/** What the server offers: a clip to stream, and a login, which its clients need; and whether it is managed here. */
export const offer = (): Promise<Offer> => (offered ??= fetch('console.json').then(reply => reply.json()));
