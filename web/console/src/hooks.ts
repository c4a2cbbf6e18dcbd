// What views share.

import {MillraceError} from '@millrace/client';
import {describe, offer, root} from './server';
import {useCallback, useEffect, useState} from 'preact/hooks';

/** Asks again every interval ms, and at once after refresh. */
export function usePolled<T>(
  ask: () => Promise<T>,
  interval: number,
  key = '',
): {value?: T; failed: string; refresh: () => void} {
  const [state, setState] = useState<{key: string; value?: T; failed: string}>({key, failed: ''});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined,
      over = false;
    const once = async () => {
      try {
        const value = await ask();
        if (!over) setState({key, value, failed: ''});
      } catch (e) {
        if (!over) setState(s => ({...s, failed: describe(e)}));
      }
      if (!over) timer = setTimeout(once, interval);
    };
    void once();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key, turn]);
  return {
    value: state.key === key ? state.value : undefined,
    failed: state.failed,
    refresh: useCallback(() => setTurn(t => t + 1), []),
  };
}

/** Runs actions of the user one at a time, and keeps the text of the last one's error, and the field that it names. */
export function useAction(after: () => void = () => {}): {
  busy: boolean;
  error: string;
  field: string;
  act: (what: () => Promise<unknown>) => Promise<boolean>;
} {
  const [busy, setBusy] = useState(false),
    [{error, field}, setError] = useState({error: '', field: ''});
  const act = async (what: () => Promise<unknown>) => {
    setBusy(true);
    setError({error: '', field: ''});
    try {
      await what();
      return true;
    } catch (e) {
      setError({error: describe(e), field: e instanceof MillraceError ? e.field : ''});
      return false;
    } finally {
      setBusy(false);
      after();
    }
  };
  return {busy, error, field, act};
}

/** Whether the server is managed at the address of the page; true until that is known. */
export function useManaged(): boolean {
  const [managed, setManaged] = useState(true);
  useEffect(() => {
    offer()
      .then(o => setManaged(o.manage))
      .catch(() => {}); // the views say that there is no answer
  }, []);
  return managed;
}

/** Whether the user may change something here: the address is one of management, and the user has the role. */
export function useMayManage(): boolean {
  const managed = useManaged(),
    [role, setRole] = useState(false);
  useEffect(() => {
    offer()
      .then(async ({login}) =>
        setRole(!login || (await (await fetch(`${root}/session_status`)).json()).roles.includes('manage')),
      )
      .catch(() => {}); // the views say that there is no answer
  }, []);
  return managed && role;
}
