import { existsSync, lstatSync, mkdirSync, readlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Files of /etc that the sandbox sees as the host has them: how programs find libraries, and the time. */
export const AS_THEY_ARE = ['/etc/ld.so.cache', '/etc/alternatives', '/etc/localtime'];

/** Files of /etc made for the sandbox, so that nothing of the host's users, hosts or secrets shows. */
const MADE: Record<string, string> = {
  passwd: 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  group: 'root:x:0:\nnogroup:x:65534:\n',
  hosts: '127.0.0.1 localhost sandbox\n::1 localhost\n',
  'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files\n',
};

/** Pairs of host path and path inside. {@link writeEtcFiles} comes first. */
export function etcFiles(sharedDir: string): [source: string, target: string][] {
  return [
    ...AS_THEY_ARE.filter((file) => existsSync(file)).map((file): [string, string] => [file, file]),
    ...Object.keys(MADE).map((name): [string, string] => [path.join(sharedDir, 'etc', name), `/etc/${name}`]),
  ];
}

/** Writes the made files below `sharedDir`. */
export function writeEtcFiles(sharedDir: string): void {
  const folder = path.join(sharedDir, 'etc');
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries(MADE)) writeFileSync(path.join(folder, name), text);
}

/** Arguments of bubblewrap that show /usr, and beside it what is a link into /usr here, or a folder of its own. */
export function systemFolders(): string[] {
  const folders = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'].filter((name) => existsSync(name));
  return [
    ...['--ro-bind', '/usr', '/usr'],
    ...folders.flatMap((folder) =>
      lstatSync(folder).isSymbolicLink()
        ? ['--symlink', readlinkSync(folder), folder]
        : ['--ro-bind', folder, folder],
    ),
  ];
}
