import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { SandboxAdmission } from '../../workers/admission.ts';
import { DiskWatermark } from '../../workers/disk-watermark.ts';

test('a disk with less than it has to have free lets nobody in, and is named once', async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'disk-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const said: { message: string; folder?: string }[] = [];
  const note = (message: string, meta?: object) => said.push({ message, ...meta });
  const logger = { warn: note, info: note };
  const notYet = path.join(folder, 'store', 'of', 'later');
  const watermark = (minFreeBytes: number) =>
    new DiskWatermark({ folders: { state: folder, store: notYet }, minFreeBytes, logger });
  assert.equal(await watermark(0).hasRoom(), true);
  assert.deepEqual([...said], []);
  const full = watermark(Number.MAX_SAFE_INTEGER);
  assert.deepEqual([await full.hasRoom(), await full.hasRoom()], [false, false]);
  assert.equal(said.length, 1);
  assert.match(said[0]?.message ?? '', /almost full/);
  assert.equal(said[0]?.folder, folder);
  assert.deepEqual(
    (await full.free()).map(({ name, free }) => [name, free > 0]),
    [
      ['state', true],
      ['store', true],
    ],
  );
});

test('no init is begun while the host is full or its disk is, and the first that can is', async () => {
  const host = { sandboxes: 1, capacity: 2 };
  let disk = false;
  let asked = 0;
  const admission = new SandboxAdmission({
    sandboxes: { stats: async () => host as never },
    disk: {
      hasRoom: async () => {
        asked++;
        return disk;
      },
    },
    slots: 8,
  });
  const { signal } = new AbortController();
  let admitted = 0;
  const reserve = async () => {
    await admission.reserveSlot(undefined, signal);
    admitted++;
  };
  const first = reserve();
  while (asked < 3) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(admitted, 0, 'the host has room, its disk has not');
  disk = true;
  await first;
  const second = reserve();
  const before = asked;
  while (asked < before + 3) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(admitted, 1, 'the place is taken by who has the slot');
  admission.releaseSlot({});
  await second;
  assert.equal(admitted, 2);
});
