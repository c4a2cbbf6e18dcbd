// The endings that a loop has not read yet.

/** A queue with one reader. The writer bounds the queue. */
export class Queue<T> {
  #items: T[] = [];
  #ended = false;
  #error: unknown;
  #wake: (() => void) | undefined; // of the waiting reader

  get length(): number {
    return this.#items.length;
  }

  push(item: T): void {
    if (this.#ended) return;
    this.#items.push(item);
    this.#wake?.();
  }

  /** Removes the oldest item. */
  shift(): T | undefined {
    return this.#items.shift();
  }

  /** Ends the queue: the remaining items can still be read, then the reader ends, or fails with the error. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
  }

  /** The next item. @param read called when an item was taken */
  async next(read: () => void): Promise<IteratorResult<T, undefined>> {
    while (this.#items.length === 0) {
      if (this.#ended) {
        const error = this.#error;
        this.#error = undefined; // thrown once
        if (error) throw error;
        return {done: true, value: undefined};
      }
      await new Promise<void>(done => (this.#wake = done));
    }
    const value = this.#items.shift()!;
    read();
    return {done: false, value};
  }
}
