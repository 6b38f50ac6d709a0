import { run } from './setup/lib/command.mjs';

/** Installs Debian's packages of these names, from lists that are read again before. @throws CommandFailed */
export async function installPackages(names: readonly string[]): Promise<void> {
  console.log(`apt-get install ${names.join(' ')}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // Another installation may be under way.
  const apt = (...args: string[]) =>
    run('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=600', ...args], { env });
  await apt('update');
  await apt('install', '-y', '--no-install-recommends', ...names);
}
