// What a stream needs of its connection.

/** A message of the server, or to the server. */
export interface Message {
  type: string;
  sid?: number;
  [member: string]: any;
}

/** A session with streams of type S. */
export interface Session<S> {
  /** The server's clock less performance.now(), ms; undefined = not known yet. */
  readonly clockOffset: number | undefined;
  /** Whether the session can send a message at once. */
  readonly writable: boolean;
  /** Opens the stream, now or after the next connection. */
  add(stream: S): void;
  /** Closes the stream, and forgets the stream. */
  remove(stream: S): void;
  sendMessage(message: Message): void;
  sendFrame(frame: Blob | Uint8Array): void;
}
