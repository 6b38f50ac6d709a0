/** Two released versions of a package: the older is the repository, the newer has the fix and its tests. */
export interface Recipe {
  /** On the Python package index, with sources that hold tests. */
  readonly package: string;
  readonly before: string;
  readonly after: string;
  /** What its tests import, pinned; pytest comes by itself. */
  readonly needs: readonly string[];
  /** Folders that it is imported from. */
  readonly pythonPath: readonly string[];
  readonly issue: string;
}

export const RECIPES: readonly Recipe[] = [
  {
    package: 'parse',
    before: '1.20.0',
    after: '1.20.1',
    needs: [],
    pythonPath: [''],
    issue:
      'A Parser does not tell the format it was made of: it has no attribute `format`. And %f in a datetime format only takes six digits.',
  },
  {
    package: 'xmltodict',
    before: '0.12.0',
    after: '0.13.0',
    needs: [],
    pythonPath: [''],
    issue:
      'parse() cannot be given a generator of chunks of bytes. Namespaces cannot be collapsed with a value of None, comments cannot be kept (process_comments), and forced CDATA cannot be named by key.',
  },
  {
    package: 'sqlparse',
    before: '0.4.3',
    after: '0.4.4',
    needs: [],
    pythonPath: [''],
    issue:
      'format() with strip_comments breaks line breaks after comments. IS is not a keyword in some places, and MATERIALIZED, HANDLER FOR and the operators of JSON are not parsed as they should be.',
  },
];
