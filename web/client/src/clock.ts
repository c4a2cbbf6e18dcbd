// The server's clock, as far as pings tell it.

const KEPT = 8,
  FIRST = 4; // pings: clocks drift, so that old ones are forgotten

/** Estimates the difference of two clocks from round trips, all in ms. */
export class Clock {
  #trips: {rtt: number; offset: number}[] = [];

  /**
   * Adds a round trip.
   * @param sent and received by performance.now()
   * @param server the server's clock in between
   */
  add(sent: number, received: number, server: number): void {
    this.#trips.push({rtt: received - sent, offset: server - (sent + received) / 2});
    if (this.#trips.length > KEPT) this.#trips.shift();
  }

  /** Whether there are too few round trips yet: the first of a connection are slow. */
  get isNew(): boolean {
    return this.#trips.length < FIRST;
  }

  /** The server's clock less performance.now(), by the shortest round trip; undefined = not known yet. */
  get offset(): number | undefined {
    return this.#best?.offset;
  }

  /** The shortest round trip of the last pings; undefined = not known yet. */
  get rtt(): number | undefined {
    return this.#best?.rtt;
  }

  get #best() {
    return this.#trips.reduce<{rtt: number; offset: number} | undefined>(
      (a, b) => (a && a.rtt <= b.rtt ? a : b),
      undefined,
    );
  }
}
