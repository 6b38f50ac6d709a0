/** A problem as the grader works with it, whatever layout it came in. */
export type Problem = StdioProblem | FunctionProblem;

/** Languages that answers may be in. */
export const LANGUAGES = ['python', 'cpp'] as const;
export type Language = (typeof LANGUAGES)[number];

interface Common {
  /** What the agent is asked. */
  readonly statement: string;
  /** Code that the answer has to begin with or to fill in. */
  readonly starter?: string;
  /** Seconds of processor time of one test, for C++; Python gets {@link PYTHON_FACTOR} times as much. */
  readonly seconds: number;
  readonly memoryBytes: number;
}

/** The program reads standard input and writes standard output. */
export interface StdioProblem extends Common {
  readonly kind: 'stdio';
  readonly tests: readonly { readonly input: string; readonly output: string }[];
  /**
   * Python source of a program that is told three files, input, expected output and the answer's output, and prints 1
   * (or a fraction) if the answer is right.
   */
  readonly checker?: string;
}

/** The answer is functions, in Python, that tests call. */
export interface FunctionProblem extends Common {
  readonly kind: 'function';
  readonly tests: FunctionTests;
}

export type FunctionTests =
  /** Python source that asserts, and what must be defined before it. `entry`: the function, for an answer that is its body. */
  | { readonly source: string; readonly prelude: string; readonly entry?: string }
  /** Calls with their arguments and result as JSON texts. `wrapped`: the result may stand in a list of one. */
  | {
      readonly cases: readonly { readonly args: readonly string[]; readonly expected: string }[];
      readonly entry: string;
      readonly wrapped: boolean;
    };

/** Limits are written for compiled languages. */
export const PYTHON_FACTOR = 4;

/** Where a data set names no limits. */
export const USUAL_SECONDS = 5;
export const USUAL_MEMORY = 512 * 1024 ** 2;
/** An interpreter and a compiler's run-time need so much, whatever a data set says. */
export const LEAST_MEMORY = 128 * 1024 ** 2;
