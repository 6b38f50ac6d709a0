import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';

const openssl = (...args: string[]) => promisify(execFile)('openssl', args);

/** A key with its certificate, as PEM files. */
export interface Certificate {
  readonly certificate: string;
  readonly key: string;
}

/** An authority that signs for 127.0.0.1 and for clients. */
export async function makeAuthority(folder: string, name: string) {
  const [key, certificate] = [path.join(folder, `${name}.key`), path.join(folder, `${name}.pem`)];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  await openssl('req', '-x509', ...curve, '-keyout', key, '-out', certificate, '-subj', `/CN=${name}`);
  return {
    certificate,
    async sign(subject: string): Promise<Certificate> {
      const base = path.join(folder, `${name}-${subject}`);
      const files = { certificate: `${base}.pem`, key: `${base}.key` };
      await openssl('req', ...curve, '-keyout', files.key, '-out', `${base}.csr`, '-subj', `/CN=${subject}`);
      await writeFile(`${base}.ext`, 'subjectAltName=IP:127.0.0.1\n');
      const request = ['-req', '-in', `${base}.csr`, '-extfile', `${base}.ext`, '-out', files.certificate];
      await openssl('x509', ...request, '-CA', certificate, '-CAkey', key, '-CAcreateserial');
      return files;
    },
  };
}

/** What stands in front of a server that speaks plain gRPC, and who has come through. */
export interface TlsProxy {
  readonly address: string;
  /** Paths of calls, each with the client's name in its certificate and its `authorization`. */
  readonly calls: { readonly call: string; readonly client: string; readonly authorization: string }[];
  close(): Promise<void>;
}

/** Ends TLS in front of a gRPC server; lets in only clients with a certificate of the authority. */
export async function startTlsProxy(upstream: string, server: Certificate, ca: string): Promise<TlsProxy> {
  const calls: TlsProxy['calls'] = [];
  const sessions = new Set<http2.Http2Session>();
  const proxy = http2.createSecureServer({
    cert: readFileSync(server.certificate),
    key: readFileSync(server.key),
    ca: readFileSync(ca),
    requestCert: true,
    rejectUnauthorized: true,
  });
  proxy.on('session', (session) => {
    const onward = http2.connect(`http://${upstream}`);
    const client = (session.socket as import('node:tls').TLSSocket).getPeerCertificate().subject.CN as string;
    for (const one of [session, onward]) {
      sessions.add(one);
      one.on('error', () => {}); // whichever end breaks off, both are closed below
      one.once('close', () => {
        session.destroy();
        onward.destroy();
        sessions.delete(one);
      });
    }
    session.on('stream', (stream: http2.ServerHttp2Stream, headers) => {
      const { ':path': call = '', ':method': method, authorization = '', ...rest } = headers;
      calls.push({ call, client, authorization });
      const { ':scheme': _scheme, ':authority': _authority, ...plain } = rest;
      const request = onward.request({ ...plain, ':path': call, ':method': method, authorization });
      request.once('response', (answer) => stream.respond(answer, { waitForTrailers: true }));
      let trailers: http2.IncomingHttpHeaders = {};
      request.once('trailers', (last) => {
        trailers = last;
      });
      stream.once('wantTrailers', () => stream.sendTrailers(trailers));
      for (const one of [stream, request]) one.on('error', () => {}); // a call that was cancelled
      stream.once('close', () => request.close(stream.rstCode));
      stream.pipe(request).pipe(stream);
    });
  });
  proxy.on('tlsClientError', () => {}); // those without a right certificate
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    address: `127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    calls,
    close: async () => {
      proxy.close();
      for (const session of sessions) session.destroy();
    },
  };
}
