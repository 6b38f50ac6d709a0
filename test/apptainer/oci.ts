import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Writes a root file system as an OCI archive of one layer, as `docker save` and skopeo do, and `more` layers (tar). */
export function writeOciArchive(
  root: string,
  archive: string,
  environment: readonly string[],
  more: readonly string[] = [],
): void {
  const layout = `${archive}.layout`;
  mkdirSync(path.join(layout, 'blobs/sha256'), { recursive: true });
  const add = (content: Buffer | object, mediaType: string) => {
    const bytes = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    writeFileSync(path.join(layout, 'blobs/sha256', sha256), bytes);
    return { mediaType, digest: `sha256:${sha256}`, size: bytes.length };
  };
  const oci = 'application/vnd.oci.image';
  execFileSync('tar', ['-cf', `${layout}.tar`, '--owner=0', '--group=0', '-C', root, '.']);
  const layers = [`${layout}.tar`, ...more].map((tar) => add(readFileSync(tar), `${oci}.layer.v1.tar`));
  const rootfs = { type: 'layers', diff_ids: layers.map(({ digest }) => digest) };
  const platform = { architecture: process.arch === 'x64' ? 'amd64' : process.arch, os: 'linux' };
  const config = add({ ...platform, rootfs, config: { Env: environment } }, `${oci}.config.v1+json`);
  const manifest = add({ schemaVersion: 2, config, layers }, `${oci}.manifest.v1+json`);
  writeFileSync(path.join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [manifest] }));
  writeFileSync(path.join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  execFileSync('tar', ['-cf', archive, '-C', layout, 'oci-layout', 'index.json', 'blobs']);
}
