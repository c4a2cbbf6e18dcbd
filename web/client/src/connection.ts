// A session of millrace.v1: any number of streams over one connection at a time.
// It must not know what is captured and how it is encoded.

import {Backoff} from './backoff.js';
import {Clock} from './clock.js';
import {MillraceError, type Code, type ErrorMessage, aborted, errorOf, throwIfAborted} from './errors.js';
import {Events} from './events.js';
import type {StreamOptions} from './options.js';
import type {Message} from './session.js';
import {Stream} from './stream.js';
import {decodeResult} from './wire.js';

const PING_INTERVAL = 5000; // ms
const MAX_SILENT = 2; // intervals without a message, after which the connection is given up
const REPLACED = 4409;

/** Close codes that forbid another attempt, with the codes of the errors. */
const FINAL: Record<number, Code> = {
  1008: 'invalid_argument',
  1009: 'too_large',
  4400: 'invalid_argument',
  4401: 'unauthenticated',
  4404: 'not_found',
  [REPLACED]: 'conflict',
};

/** The part of a WebSocket that the client uses: WebSocket of the browser or of the package ws. */
export interface Socket {
  binaryType: string;
  readonly bufferedAmount: number;
  readonly readyState: number;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  send(data: any): void;
  close(code?: number): void;
}

export interface ConnectOptions {
  /** Closes the connection. */
  signal?: AbortSignal;
  /** For Node before 22, without a WebSocket: `import WebSocket from 'ws'`. */
  WebSocket?: new (url: string, protocols: string[]) => Socket;
  /**
   * An API key of the server, or a function that returns the valid key. Each connection begins with a request for a
   * ticket, since the WebSocket of a page cannot have headers.
   */
  token?: Token;
  /** Headers of the request for a ticket, in addition to the token or instead. */
  headers?: Record<string, string>;
}

/** An API key of the server, or a function that returns an API key. */
export type Token = string | (() => string | Promise<string>);

/** The header for a key. Rejects with MillraceError. @internal */
export async function authorization(token?: Token): Promise<Record<string, string>> {
  if (token === undefined) return {};
  let key: unknown, cause: unknown;
  try {
    key = typeof token === 'function' ? await token() : token;
  } catch (e) {
    cause = e;
  }
  if (typeof key === 'string' && /^[!-~]+$/.test(key)) return {Authorization: `Bearer ${key}`};
  throw new MillraceError(
    'unauthenticated',
    cause ? `token: the function failed: ${cause}` : 'token: is not a key: want letters, digits and signs of ASCII',
    {cause},
  );
}

export type ConnectionState = 'connecting' | 'open' | 'waiting' | 'closed';

export interface ConnectionEvents {
  /** waiting = until the next attempt; error: the cause of the end of the connection, if the server sent a cause. */
  state: {state: ConnectionState; error?: MillraceError};
}

/**
 * Connects to a server, such as `http://127.0.0.1:8000`; a path in the address is kept. Rejects with MillraceError when
 * the first attempt fails.
 */
export async function connect(url: string | URL, options: ConnectOptions = {}): Promise<Connection> {
  const connection = new Connection(url, options);
  await connection.connected;
  return connection;
}

/** The address of a path of the server, for the scheme http or ws. */
export function address(base: string | URL, scheme: 'http' | 'ws', path: string): string {
  let url: URL;
  try {
    url = new URL(base, globalThis.location?.href);
  } catch (cause) {
    throw new MillraceError('invalid_argument', `url: ${base} is not an address: http://127.0.0.1:8000 is one`, {
      cause,
    });
  }
  const secure = /^(https|wss):$/.test(url.protocol);
  if (!secure && !/^(http|ws):$/.test(url.protocol))
    throw new MillraceError('invalid_argument', `url: ${base} is not an address of http, https, ws or wss`);
  return `${scheme}${secure ? 's' : ''}://${url.host}${url.pathname.replace(/\/+$/, '')}${path}`;
}

/**
 * A session over one connection at a time. After a lost connection, the client reconnects and resumes the session; if
 * the server no longer has the session, the client opens the streams again. The session ends with close, with the
 * signal, or when the server refuses the client for good.
 */
export class Connection extends Events<ConnectionEvents> {
  readonly #url: string;
  readonly #health: string;
  readonly #tickets: string;
  readonly #options: ConnectOptions;
  #socket: Socket | null = null;
  #attempts = 0; // to connect; a later one replaces an earlier one
  #ready = false; // the connection has a session
  #timer: ReturnType<typeof setTimeout> | undefined; // until the next attempt to connect
  #pingTimer: ReturnType<typeof setInterval> | undefined;
  #silent = 0;
  #backoff = new Backoff();
  #clock = new Clock();
  #token = ''; // resumes the session, once
  #newSession: Message | undefined; // the server's message with a new session, for when the old one cannot be resumed
  #fault: MillraceError | undefined; // the server's error for the connection
  #draining = false; // the server is draining
  #streams = new Set<Stream>();
  #sids = 0; // the last stream number
  #state: ConnectionState = 'connecting';
  #id = '';
  #first = true; // it was never open
  #resolve!: () => void;
  #reject!: (error: MillraceError) => void;

  /** @internal */
  readonly connected = new Promise<void>((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));

  /** @internal */
  constructor(url: string | URL, options: ConnectOptions) {
    super();
    this.#url = address(url, 'ws', '/v2/stream');
    this.#health = address(url, 'http', '/v2/health/live');
    this.#tickets = address(url, 'http', '/v2/tickets');
    this.#options = options;
    const {signal} = options;
    if (!options.WebSocket && !globalThis.WebSocket) {
      throw new MillraceError(
        'unsupported',
        'WebSocket: is missing here: give the one of the package ws as option WebSocket, or use Node 22',
        {field: 'WebSocket'},
      );
    }
    throwIfAborted(signal);
    signal?.addEventListener('abort', this.#abort);
    this.#connect();
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** The server's id of the session; the id changes when the session could not be resumed. */
  get id(): string {
    return this.#id;
  }

  /** The time of a round trip to the server, ms; undefined = not known yet. */
  get rtt(): number | undefined {
    return this.#clock.rtt;
  }

  /** The server's clock less performance.now(), ms; undefined = not known yet. */
  get clockOffset(): number | undefined {
    return this.#clock.offset;
  }

  /** The server is draining: the server opens no streams, and the connection will end. */
  get draining(): boolean {
    return this.#draining;
  }

  /**
   * Opens a stream to a model. Rejects with MillraceError when the server refuses. The client opens an open stream
   * again after a loss.
   */
  async open(options: StreamOptions): Promise<Stream> {
    if (this.#state === 'closed') throw new MillraceError('canceled', 'the connection is closed');
    const stream = await Stream.create(this, options);
    await stream.opened;
    return stream;
  }

  /** Ends the streams and the session. Frames in flight end as dropped: `closed`. */
  close(): void {
    this.#end();
  }

  // The remaining methods are for Stream.

  /** @internal Whether the socket can send a message at once. */
  get writable(): boolean {
    return this.#ready && !this.#draining && this.#socket!.bufferedAmount === 0;
  }

  /** @internal */
  add(stream: Stream): void {
    if (this.#state === 'closed') {
      stream.finish(new MillraceError('canceled', 'the connection is closed'));
      return;
    }
    this.#streams.add(stream);
    if (this.#ready) stream.open(++this.#sids);
  }

  /** @internal */
  remove(stream: Stream): void {
    if (!this.#streams.delete(stream)) return;
    if (this.#ready && stream.sid) this.sendMessage({type: 'close', sid: stream.sid});
    stream.sid = 0;
  }

  /** @internal */
  sendMessage(message: Message): void {
    this.#socket?.send(JSON.stringify(message));
  }

  /** @internal */
  sendFrame(frame: Blob | Uint8Array): void {
    this.#socket?.send(frame);
  }

  #abort = (): void => this.#end(aborted(this.#options.signal!));

  async #connect(): Promise<void> {
    const attempt = ++this.#attempts,
      protocols = ['millrace.v1'];
    this.#silent = 0;
    this.#fault = this.#newSession = undefined;
    this.#draining = false;
    this.#setState('connecting');
    if (this.#options.headers || this.#options.token !== undefined) {
      try {
        protocols.push(`millrace.ticket.${await this.#ticket()}`);
      } catch (e) {
        if (attempt === this.#attempts) this.#closed({code: 1006}, e as MillraceError);
        return;
      }
      if (attempt !== this.#attempts) return; // closed in the meantime
    }
    const socket = (this.#socket = new (this.#options.WebSocket ?? globalThis.WebSocket)(
      this.#url,
      protocols,
    ) as Socket);
    let cause: unknown;
    socket.binaryType = 'arraybuffer';
    socket.onmessage = e => this.#message(typeof e.data === 'string' ? JSON.parse(e.data) : decodeResult(e.data));
    socket.onerror = e => (cause = e.message); // of ws; browsers do not tell
    socket.onclose = e => this.#closed(e, this.#fault, cause);
    this.#pingTimer = setInterval(() => this.#ping(), PING_INTERVAL);
  }

  /** A ticket to connect with. Rejects with MillraceError. */
  async #ticket(): Promise<string> {
    const headers = {...(await authorization(this.#options.token)), ...this.#options.headers};
    let reply: Response;
    try {
      reply = await fetch(this.#tickets, {method: 'POST', headers});
    } catch (cause) {
      throw new MillraceError('unavailable', `no answer from ${this.#tickets}`, {retryable: true, cause});
    }
    const body = await reply.json().catch(() => ({}));
    if (!reply.ok)
      throw new MillraceError(
        body.code ?? 'unauthenticated',
        body.error ?? `${this.#tickets} answers with status ${reply.status}`,
      );
    return body.ticket;
  }

  /** Detects a dead connection while the session can still be resumed, and compares the clocks. */
  #ping(): void {
    if (this.#silent++ >= MAX_SILENT) this.#reconnect();
    else if (this.#ready) this.#sendPing();
  }

  #sendPing(): void {
    this.sendMessage({type: 'ping', t: Math.round(performance.now() * 1000)});
  }

  #message(m: Message): void {
    this.#silent = 0;
    switch (m.type) {
      case 'ready':
        this.#newSession = m;
        if (this.#token) this.#attach();
        else this.#begin(m);
        return;
      case 'attached':
        this.#resume(m);
        return;
      case 'pong':
        this.#clock.add(m.t / 1000, performance.now(), m.server_t / 1000);
        if (this.#clock.isNew) this.#sendPing();
        return;
      case 'goaway':
        this.#draining = true;
        return;
      case 'error':
        if (m.sid !== undefined) break;
        if (!this.#ready && !m.fatal)
          this.#begin(this.#newSession!); // the session cannot be resumed
        else this.#fault = errorOf(m as unknown as ErrorMessage);
        return;
    }
    if (m.sid) [...this.#streams].find(s => s.sid === m.sid)?.handle(m);
  }

  #attach(): void {
    const streams = [...this.#streams].filter(s => s.sid);
    this.sendMessage({
      type: 'attach',
      token: this.#token,
      // Endings do not come in order: all below the oldest frame in flight have come.
      streams: streams.map(s => ({sid: s.sid, last_seq: s.lastEnded})),
    });
    this.#token = ''; // valid once, whether a reply comes or not
  }

  /** Begins a new session and opens the streams in the session. */
  #begin(ready: Message): void {
    this.#setSession(ready);
    for (const stream of [...this.#streams]) stream.open(++this.#sids);
  }

  /** Resumes the session of the connection before. */
  #resume(attached: Message): void {
    this.#setSession(attached);
    const states = new Map<number, Message>(attached.streams.map((s: Message) => [s.sid, s]));
    for (const stream of [...this.#streams]) {
      if (stream.resumeFrom(states.get(stream.sid))) states.delete(stream.sid);
      else stream.open(++this.#sids);
    }
    for (const sid of states.keys()) this.sendMessage({type: 'close', sid}); // stopped in the meantime
  }

  #setSession({session, resume_token: token}: Message): void {
    this.#id = session;
    this.#token = token;
    this.#ready = true;
    this.#first = false;
    this.#backoff.reset();
    this.#setState('open');
    this.#resolve();
    this.#sendPing();
  }

  async #closed(
    {code, reason}: {code: number; reason?: string},
    fault?: MillraceError,
    cause?: unknown,
  ): Promise<void> {
    const final = FINAL[code];
    if (!fault && (final || reason))
      fault = new MillraceError(final ?? 'unavailable', reason || `the server closed the session (${code})`, {
        retryable: !final,
      });
    if (final || this.#first || fault?.code === 'unauthenticated' || fault?.code === 'permission_denied') {
      const attempt = this.#attempts;
      fault ??= await this.#unreachable(cause);
      if (attempt === this.#attempts) this.#end(fault);
    } else {
      this.#reconnect(fault);
    }
  }

  /** The reason of a missing connection. Browsers do not give the reply to a WebSocket upgrade to pages. */
  async #unreachable(cause: unknown): Promise<MillraceError> {
    let why = `no answer from ${this.#health}`;
    try {
      const {ok, status} = await fetch(this.#health);
      why = `${this.#url} refused the connection`;
      if (!ok) why += `, and ${this.#health} answers with status ${status}`;
      else if (globalThis.location) why += `: does the server’s setting origins list ${location.origin}?`;
    } catch {
      /* the text says so */
    }
    return new MillraceError('unavailable', cause ? `${why} (${cause})` : why, {retryable: true, cause});
  }

  #reconnect(fault?: MillraceError): void {
    this.#detach();
    this.#timer = setTimeout(() => this.#connect(), this.#backoff.next(fault?.retryAfterMs));
    this.#setState('waiting', fault);
    for (const stream of [...this.#streams]) stream.disconnected(fault);
  }

  #end(error?: MillraceError): void {
    if (this.#state === 'closed') return;
    this.#attempts++;
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener('abort', this.#abort);
    const socket = this.#detach();
    this.#token = this.#id = '';
    this.#setState('closed', error);
    for (const stream of [...this.#streams]) stream.finish(error);
    socket?.close(1000);
    this.#reject(error ?? new MillraceError('canceled', 'the connection was closed'));
  }

  /** Detaches the connection without closing, because a close would end the session. */
  #detach(): Socket | null {
    const socket = this.#socket;
    clearInterval(this.#pingTimer);
    this.#socket = null;
    this.#ready = false;
    if (!socket) return null;
    socket.onmessage = socket.onclose = null;
    if (socket.readyState === 0) socket.close(); // connecting
    return socket;
  }

  #setState(state: ConnectionState, error?: MillraceError): void {
    if (this.#state === state) return;
    this.#state = state;
    this.emit('state', error ? {state, error} : {state});
  }
}
