import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import test from 'node:test';
import { promisify } from 'node:util';
import { withNothingInherited } from '../../config/inherited.ts';
import { loadTools } from '../../config/tools.ts';
import { BACKENDS } from './support.ts';

/** add_key(2) and keyctl(2), by number. */
const CALLS = `
import ctypes, os, sys
libc = ctypes.CDLL(None)
x86 = os.uname().machine == 'x86_64'
add, keyctl = (248, 250) if x86 else (217, 219)
session = ctypes.c_int(-3)
`;

/** Becomes its arguments in a session that has a key, with a folder open. */
const WITH_KEY = `${CALLS}
libc.syscall(keyctl, 1, None)
secret = b'of the host'
os.dup2(os.open('/', os.O_RDONLY), 77, inheritable=True)
libc.syscall(add, b'user', b'name-of-a-key', secret, ctypes.c_size_t(len(secret)), session)
os.execv(sys.argv[1], sys.argv[1:])`;

/** Prints the keys of its session by number, and each one's name. */
const KEYS = `${CALLS}
held = (ctypes.c_int32 * 100)()
size = libc.syscall(keyctl, 11, session, held, ctypes.c_size_t(400))
for key in held[:max(0, size) // 4]:
    name = ctypes.create_string_buffer(200)
    libc.syscall(keyctl, 6, ctypes.c_int(key), name, ctypes.c_size_t(200))
    print(name.value.decode())
print('end')`;

/** A host with one sandbox, which prints what a program beside it, and a program and a shell in it print. */
const HOST = `
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Box, startHost } from './test/sandbox/support.ts';
const [backend, script] = process.argv.slice(1);
const ends = [];
console.log(execFileSync('/usr/bin/env', ['python3', '-c', script], { encoding: 'utf8' }));
const { client } = await startHost({ after: (end) => ends.unshift(end) }, backend);
const box = await Box.create(client);
console.log((await box.exec(['python3', '-c', script])).stdout.text);
console.log('77:' + existsSync('/proc/self/fd/77'));
console.log((await box.bash("python3 -c '" + script.replaceAll("'", "'\\\\''") + "'")).output.text);
await client.release(box.info.sandboxId);
for (const end of ends) await end();`;

test('what runs in a sandbox holds no key and no open file of those who started the host', async () => {
  const { python } = loadTools();
  const run = async (backend: string, wrapped: (argv: string[]) => string[]): Promise<string> => {
    const tsx = ['--import', 'tsx', '--input-type=module', '-e', HOST, backend, KEYS];
    const argv = ['-c', WITH_KEY, ...wrapped([process.execPath, ...tsx])];
    return (await promisify(execFile)(python, argv)).stdout;
  };
  for (const backend of BACKENDS.filter((name) => name !== 'process')) {
    const own = await run(backend, (argv) => withNothingInherited(python, argv));
    assert.equal(own.match(/^end$/gm)?.length, 3, own);
    assert.doesNotMatch(own, /name-of-a-key/);
    assert.match(own, /^77:false$/m);
  }
  // The test would see it; a sandbox may not even ask for keys.
  const inherited = await run('bubblewrap', (argv) => argv);
  assert.equal(inherited.match(/^end$/gm)?.length, 3, inherited);
  assert.equal(inherited.match(/name-of-a-key/g)?.length, 1, inherited);
  assert.match(inherited, /^77:true$/m);
});
