import { XMLParser } from 'fast-xml-parser';
import { z } from 'zod';

/** What became of a test, in the words of pytest's reports. */
export type Status = 'PASSED' | 'FAILED' | 'ERROR' | 'SKIPPED' | 'XFAIL';

/** One test of a report: its module and classes with dots, and its name with parameters. */
export interface TestResult {
  readonly place: string;
  readonly name: string;
  readonly status: Status;
}

const Attributes = { '@classname': z.string().default(''), '@name': z.string() };
const Case = z.object({
  ...Attributes,
  failure: z.unknown().optional(),
  error: z.unknown().optional(),
  skipped: z.union([z.looseObject({ '@type': z.string().optional() }), z.string()]).optional(),
});
const Report = z.object({
  testsuites: z.object({
    testsuite: z.array(z.object({ testcase: z.array(Case).default([]) })),
  }),
});

const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: '@',
  parseAttributeValue: false,
  parseTagValue: false,
  isArray: (name) => name === 'testsuite' || name === 'testcase',
});

/** The tests in a JUnit report of pytest (family xunit1); undefined if it is none. Pure. */
export function readReport(xml: string): TestResult[] | undefined {
  // pytest declares none; what does could make the parser work for ever.
  if (xml.includes('<!DOCTYPE') || xml.includes('<!ENTITY')) return undefined;
  let tree: unknown;
  try {
    tree = parser.parse(xml);
  } catch {
    return undefined; // cut off, or written by something else
  }
  const report = Report.safeParse(tree).data;
  return report?.testsuites.testsuite.flatMap(({ testcase }) =>
    testcase.map((one) => ({ place: one['@classname'], name: one['@name'], status: statusOf(one) })),
  );
}

function statusOf({ failure, error, skipped }: z.infer<typeof Case>): Status {
  if (failure !== undefined) return 'FAILED';
  if (error !== undefined) return 'ERROR';
  if (skipped === undefined) return 'PASSED';
  return typeof skipped === 'object' && skipped['@type'] === 'pytest.xfail' ? 'XFAIL' : 'SKIPPED';
}

/**
 * What became of the test with an id: `path/test_a.py::TestB::test_c[d]`, or as other runners write it,
 * `test_c (module.TestB)` or a bare name. Undefined if it is not there; the worst, if it is there more than once.
 */
export function statusIn(results: readonly TestResult[], id: string): Status | undefined {
  const matches = matcherOf(id);
  const found = results.filter(matches).map(({ status }) => status);
  return (['ERROR', 'FAILED', 'SKIPPED', 'XFAIL', 'PASSED'] as const).find((status) =>
    found.includes(status),
  );
}

function matcherOf(id: string): (result: TestResult) => boolean {
  const split = id.indexOf('::');
  if (split >= 0) {
    const file = id.slice(0, split).replace(/\.py$/, '').replaceAll('/', '.');
    // Only before the parameters is `::` a separator.
    const [, classes = '', name = ''] = /^((?:[^:[]+::)*)([\s\S]*)$/.exec(id.slice(split + 2)) ?? [];
    const place = [file, ...classes.split('::').filter((part) => part !== '')].join('.');
    return (result) => result.place === place && result.name === name;
  }
  const [, method, where] = /^(\S+) \(([\w.]+)\)$/.exec(id) ?? [];
  if (method !== undefined && where !== undefined) {
    const place = where.endsWith(`.${method}`) ? where.slice(0, -method.length - 1) : where;
    return (result) => result.name === method && `.${result.place}`.endsWith(`.${place}`);
  }
  return (result) => result.name === id || `${result.place.split('.').at(-1)}.${result.name}` === id;
}

/** As SWE-bench means it: an expected failure is a pass; what was skipped or is missing is none. */
export function passes(status: Status | undefined): boolean {
  return status === 'PASSED' || status === 'XFAIL';
}
