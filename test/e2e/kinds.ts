import type { Replier } from '../../chaos/policy-server.ts';
import { decode, END, encode } from '../../chaos/tokens.ts';
import { sweTask } from '../handlers/swe-repository.ts';

/** A task, and what a policy replies, turn by turn. */
export interface Kind {
  /** Stands in the task's statement, by which the policy knows what it is asked. */
  readonly name: string;
  readonly handler: string;
  readonly data: Record<string, unknown>;
  readonly right: readonly string[];
  readonly wrong: readonly string[];
  /** To which the grader cannot say anything. */
  readonly unclear?: readonly string[];
  /** A text that only the grader may have. */
  readonly hidden?: string;
  /** Commits that the agent can find; null if it does not look for anything. */
  readonly commits: number | null;
}

const block = (language: string, text: string) => `\`\`\`${language}\n${text}\n\`\`\``;
const bash = (command: string) => block('bash', command);

/**
 * Looks for a text that only the grader may have, wherever the agent can look, and for commits; the command itself does
 * not hold the text.
 */
const search = (hidden: string) =>
  `grep -rslF --exclude-dir=lib -e '${hidden.slice(0, 3)}''${hidden.slice(3)}' -D skip /workspace /opt /tmp /etc /home ` +
  `/root /var /run /dev /srv /mnt /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; git -C repo log --all --oneline 2>/dev/null | wc -l; echo searched`;
const searchInPython = (hidden: string) =>
  block('python', `import subprocess\nprint(subprocess.getoutput(${JSON.stringify(search(hidden))}))`);

/** A task of each kind; the instance of software engineering is made in a folder. */
export async function kinds(folder: string): Promise<Kind[]> {
  const program = 'print("hidden-5c1" + hex(sum(map(int, input().split())))[2:])';
  return [
    {
      name: 'maths',
      handler: 'math',
      data: { problem: 'Case maths. What is the smallest prime above 740291835?', answer: '740291861' },
      hidden: '740291861',
      commits: 0,
      right: [
        bash(search('740291861')),
        block('python', 'import sympy\nsympy.nextprime(740291835)'),
        'So it is \\boxed{740,291,861}.',
      ],
      wrong: ['So it is \\boxed{740,291,837}.'],
    },
    {
      name: 'code',
      handler: 'code',
      data: {
        question: 'Case code. Print hidden-5c1 and then the sum of the input, in base 16.',
        input_output: JSON.stringify({ inputs: ['100 58\n'], outputs: ['hidden-5c19e\n'] }),
      },
      hidden: 'hidden-5c19e',
      commits: 0,
      right: [
        bash(search('hidden-5c19e')),
        bash(`echo '${program}' > a.py; echo 1 2 | python3 a.py`),
        block('finish', program),
      ],
      wrong: [bash('echo 1'), `Here it is:\n\n${block('python', 'print("hidden-5c1")')}`],
    },
    {
      name: 'stem',
      handler: 'stem',
      data: {
        question: 'Case stem. How much are the Zyx and the Abc constant together?',
        answer: '42.75 m',
        documents: [
          {
            title: 'Constants',
            text: `${'Nothing of note.\n\n'.repeat(80)}The Zyx constant is 17.25 metres.`,
          },
          { title: 'Others', text: 'Abc: 25.5 m' },
        ],
      },
      hidden: '42.75 m',
      commits: 0,
      right: [
        searchInPython('42.75 m'),
        block('search', 'the zyx constants?'),
        block('search', 'abc "'),
        'Together \\boxed{4275\\,\\text{cm}}.',
      ],
      wrong: [block('search', 'abc'), 'Together \\boxed{42.75\\,\\text{cm}}.'],
    },
    {
      name: 'judged',
      handler: 'stem',
      data: {
        question: 'Case judged. Why is the sky blue?',
        answer: 'Rayleigh scattering',
        rubric: 'It names scattering, rubric-17.',
      },
      hidden: 'rubric-17',
      commits: 0,
      right: [searchInPython('rubric-17'), 'The answer is Rayleigh scattering.'],
      wrong: ['The answer is the sea.'],
      unclear: ['The answer is the moon.'],
    },
    {
      // It brings its own loop: program-handler.ts.
      name: 'program',
      handler: 'program',
      data: { question: 'Case program. What are four and three?' },
      commits: null,
      right: ['Seven.', 'Seven.'],
      wrong: ['Eight.', 'Eight.'],
    },
    {
      name: 'swe',
      handler: 'swe',
      data: { ...(await sweTask(folder)), problem_statement: 'Case swe. add(1, 2) is 4.' },
      hidden: 'hidden_marker',
      commits: 1,
      right: [
        bash(search('hidden_marker')),
        bash("cd repo && sed -i 's/ + 1//' calc/core.py && git commit -qam fixed && rm -rf .git"),
        block('finish', 'done'),
      ],
      wrong: [bash("cd repo && sed -i 's/ + 1/ - 1/' calc/core.py"), block('finish', 'done')],
    },
  ];
}

export const SIDES = ['right', 'wrong', 'unclear'] as const;
export type Side = (typeof SIDES)[number];

/** The task of a kind, to which the policy replies so. */
export function taskOf({ name, handler, data }: Kind, side: Side) {
  const text = JSON.stringify(data).replace(`Case ${name}.`, `Case ${name}, ${side}.`);
  return { handler, id: `${name}-${side}`, data: JSON.parse(text) as Record<string, unknown> };
}

const ANSWER = '<|im_start|>assistant\n';

/** Plays what the policy replies, and what a judge does who knows scattering from the sea, and nothing of the moon. */
export function playing(all: readonly Kind[]): Replier {
  return (promptIds) => {
    const text = decode(promptIds);
    const asked = text.slice(text.lastIndexOf('<|im_start|>user\n'));
    const [, name, side] = /Case (\w+), (\w+)\./.exec(asked) ?? [];
    const kind = all.find((one) => one.name === name);
    if (!kind) throw new Error(`nobody's prompt: ${asked.slice(0, 200)}`);
    const turn = asked.split(ANSWER).length - 2;
    const given = /<answer [0-9a-f]+>\n([\s\S]*?)\n<\/answer/.exec(asked)?.[1];
    const reply = given === undefined ? kind[side as Side]?.[turn] : verdictOn(given);
    const ids = [...encode(reply ?? ''), END];
    return { task: kind, turn, ids, probabilities: ids.map((_, index) => 1 / (2 + (index % 5))) };
  };
}

function verdictOn(given: string): string {
  if (given.includes('moon')) return 'I would rather not say.';
  return JSON.stringify({ reason: 'It says so.', correct: given.includes('scattering') });
}
