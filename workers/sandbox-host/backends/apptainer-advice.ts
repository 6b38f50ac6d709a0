import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { userNamespaceAdvice } from './user-namespaces.ts';

/** What the runtime said when it could not make a trial sandbox, and what may help. */
export function withAdvice(why: string): string {
  return /namespace|not permitted|denied/i.test(why) ? `${why}. ${userNamespaceAdvice()}` : why;
}

/**
 * Why there is no sandbox, with the names that files have on the host (a host that runs as root shows `sources` to the
 * runtime as /tmp/<index>), and what to do if the first of them, the image, is not for its sandboxes' user to read.
 */
export function inNamesOfTheHost(
  error: unknown,
  sources: readonly string[],
  ownerUid: number | null,
): RolloutError {
  const said = messageOf(error);
  const why =
    ownerUid === null
      ? said
      : said.replace(/\/tmp\/([0-9]+)\b/g, (name, at: string) => sources[Number(at)] ?? name);
  const advice =
    ownerUid === null
      ? `let this host's user read it`
      : 'a host that runs as root has users of their own for its sandboxes; let all read it';
  const remedies = [
    [/not readable|permission denied/i, `Is it the image? ${advice}: chmod -R a+rX ${sources[0]}`],
    [/unknown option.*\buid=/i, 'SingularityCE needs squashfuse 0.2.0 or newer, or a folder as the image'],
  ] as const;
  const remedy = remedies.find(([pattern]) => pattern.test(why));
  return new RolloutError('SandboxFailed', remedy ? `${why}. ${remedy[1]}` : why, { cause: error });
}
