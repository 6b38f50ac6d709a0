import { filesOfPatch, type Instance } from './task.ts';

/** What of a patch never reaches the tests' run: tests, what configures or extends the runner, what Python loads by itself. */
const ALWAYS = [
  ...[
    'conftest.py',
    'pytest.ini',
    '.pytest.ini',
    'tox.ini',
    'setup.cfg',
    'pyproject.toml',
    'pytest.toml',
    '.pytest.toml',
  ],
  // As modules of any kind: packages, and libraries that a patch brings compiled.
  ...['sitecustomize', 'usercustomize'].flatMap((name) => [name, `${name}.*`, `${name}/*`]),
  ...['*.pth', '*.pyc'],
  // Plug-ins of pytest are found by these.
  ...['*.dist-info/*', '*.egg-info/*', '*.egg-link'],
];
const TEST_FOLDERS = ['tests', 'test', 'testing', 'r2e_tests'];
/** A folder or module of these names at the root would be imported instead of the real one. */
const SHADOWS = ['pytest', '_pytest', 'pluggy', 'iniconfig', 'packaging'];

/** Patterns for `git apply --exclude`, in which `*` stands for slashes as well. */
export function excludedFrom(instance: Instance): string[] {
  const own = 'patch' in instance.tests ? filesOfPatch(instance.tests.patch) : instance.testFiles;
  return [
    ...ALWAYS.flatMap((name) => [name, `*/${name}`]),
    ...TEST_FOLDERS.flatMap((name) => [name, `${name}/*`, `*/${name}`, `*/${name}/*`]),
    ...SHADOWS.flatMap((name) => [name, `${name}/*`, `${name}.*`]),
    ...own.map((file) => file.replace(/[\\*?[\]]/g, '\\$&')),
  ];
}
