// Fields of forms, with the server's errors about them.

import type {ComponentChildren, JSX} from 'preact';
import type {Texts} from './change';

/** Some fields of a form. */
export interface Fields {
  get: (name: string) => string;
  put: (texts: Texts) => void;
  /** What the server says of the field. */
  wrong: (name: string) => string;
  id: (name: string) => string;
}

export function Field({
  of,
  name,
  label,
  children,
}: {
  of: Fields;
  name: string;
  label: string;
  children: (attributes: object) => ComponentChildren;
}) {
  const id = of.id(name),
    wrong = of.wrong(name);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({id, ...(wrong ? {'aria-invalid': true, 'aria-describedby': `${id}-wrong`} : {})})}
      {wrong && (
        <p class="wrong" id={`${id}-wrong`} role="alert">
          {wrong}
        </p>
      )}
    </div>
  );
}

export interface Named {
  of: Fields;
  name: string;
  label: string;
}

export function Text({of, name, label, ...more}: Named & JSX.IntrinsicElements['input']) {
  return (
    <Field {...{of, name, label}}>
      {attributes => (
        <input {...attributes} {...more} value={of.get(name)} onInput={e => of.put({[name]: e.currentTarget.value})} />
      )}
    </Field>
  );
}

export function Number(props: Named) {
  return <Text {...props} type="number" min="0" step="any" placeholder="default" />;
}

export function Choice({of, name, label, options}: Named & {options: Record<string, string>}) {
  return (
    <Field {...{of, name, label}}>
      {attributes => (
        <select {...attributes} value={of.get(name)} onChange={e => of.put({[name]: e.currentTarget.value})}>
          {Object.entries(options).map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check({of, name, label}: Named) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={of.get(name) !== ''}
        onChange={e => of.put({[name]: e.currentTarget.checked ? 'true' : ''})}
      />{' '}
      {label}
    </label>
  );
}
