// Events with types.

const Target: new () => object = EventTarget;

export interface Events<Details> {
  addEventListener<K extends keyof Details & string>(
    type: K,
    listener: (event: CustomEvent<Details[K]>) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof Details & string>(
    type: K,
    listener: (event: CustomEvent<Details[K]>) => void,
    options?: boolean | EventListenerOptions,
  ): void;
}

/** An EventTarget with CustomEvents. Details has the details by the type of the event. */
export class Events<Details> extends Target {
  protected emit<K extends keyof Details & string>(type: K, detail: Details[K]): void {
    (this as unknown as EventTarget).dispatchEvent(new CustomEvent(type, {detail}));
  }
}
