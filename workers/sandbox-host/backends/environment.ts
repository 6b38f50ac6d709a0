import type { SandboxSpec } from '../../../contracts/sandbox.ts';

/**
 * What every program inside starts with: no pager, no colours, no prompts for passwords, UTF-8. Nothing of
 * the host's own environment is passed on.
 */
const BASE: Record<string, string> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LANG: 'C.UTF-8',
  LC_ALL: 'C.UTF-8',
  TERM: 'dumb',
  NO_COLOR: '1',
  PAGER: 'cat',
  GIT_PAGER: 'cat',
  MANPAGER: 'cat',
  SYSTEMD_PAGER: '',
  GIT_TERMINAL_PROMPT: '0',
  DEBIAN_FRONTEND: 'noninteractive',
  PYTHONUNBUFFERED: '1',
  TMPDIR: '/tmp',
};

/** The environment of a program: the base, the sandbox's, the program's own, later ones winning. */
export function programEnvironment(
  spec: SandboxSpec,
  home: string,
  environment: Readonly<Record<string, string>>,
): Record<string, string> {
  return { ...BASE, HOME: home, ...spec.environment, ...environment };
}
