// Who is signed in, and which namespace the pages show.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';

export interface Session {
  user: string;
  groups: string[];
  context: string;
  plane: boolean;
  version: string;
  /** What to show to those who may not list namespaces. */
  namespace: string;
}

export interface View {
  session: Session;
  namespace: string; // empty: all
}

export const ViewContext = createContext<View>({
  session: { user: '', groups: [], context: '', plane: false, version: '', namespace: '' },
  namespace: '',
});

export const useView = (): View => useContext(ViewContext);
