import { readFileSync } from 'node:fs';

/** Why user namespaces may be refused here, and what to do. */
export function userNamespaceAdvice(): string {
  const setting = (file: string): string | null => {
    try {
      return readFileSync(file, 'latin1').trim();
    } catch {
      return null; // this kernel has no such setting
    }
  };
  if (setting('/proc/sys/kernel/apparmor_restrict_unprivileged_userns') === '1') {
    return (
      'AppArmor forbids user namespaces to ordinary programs: install an AppArmor profile with `userns,` for ' +
      'bwrap, or run `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`'
    );
  }
  if (setting('/proc/sys/kernel/unprivileged_userns_clone') === '0') {
    return 'The kernel forbids user namespaces: run `sudo sysctl kernel.unprivileged_userns_clone=1`';
  }
  if (setting('/proc/sys/user/max_user_namespaces') === '0') {
    return 'The kernel forbids user namespaces: run `sudo sysctl user.max_user_namespaces=15000`';
  }
  return 'User namespaces may be forbidden here (in a container: allow unshare and mount in its seccomp profile)';
}
