import type { S3Client } from '@aws-sdk/client-s3';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { ArchivePlace, Objects } from './archive.ts';

/**
 * Objects below a prefix of a bucket, of Amazon S3 or whatever speaks as it does. Who asks, and how often again, is the
 * SDK's own business: its standard variables, profiles and roles.
 */
export class S3Objects implements Objects {
  readonly place: string;
  private readonly bucket: string;
  private readonly prefix: string;
  private readonly at: Pick<ArchivePlace, 'endpoint' | 'region'>;
  private opened: Promise<S3Client> | undefined;

  private constructor(bucket: string, prefix: string, at: Pick<ArchivePlace, 'endpoint' | 'region'>) {
    this.bucket = bucket;
    this.prefix = prefix;
    this.place = `s3://${bucket}${prefix && `/${prefix}`}`;
    this.at = at;
  }

  /** @param uri `s3://bucket/prefix` @throws RolloutError InvalidRequest */
  static at(uri: string, at: Pick<ArchivePlace, 'endpoint' | 'region'>): S3Objects {
    const [, bucket, prefix = ''] =
      /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*?))?\/*$/.exec(uri) ?? [];
    if (bucket) return new S3Objects(bucket, prefix, at);
    throw new RolloutError('InvalidRequest', `archive.to: ${uri} is not s3://bucket/prefix`);
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    const { PutObjectCommand } = await import('@aws-sdk/client-s3');
    const client = await this.client();
    const input = { ...this.object(name), Body: bytes, ContentType: 'application/gzip' };
    await client.send(new PutObjectCommand(input)).catch((error) => this.failed('write', name, error));
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    const { GetObjectCommand, NoSuchKey } = await import('@aws-sdk/client-s3');
    const client = await this.client();
    try {
      const { Body } = await client.send(new GetObjectCommand(this.object(name)));
      return await Body?.transformToByteArray();
    } catch (error) {
      return error instanceof NoSuchKey ? undefined : this.failed('read', name, error);
    }
  }

  /** Loaded when it is first wanted: most processes never read an archive. */
  private client(): Promise<S3Client> {
    this.opened ??= import('@aws-sdk/client-s3').then(({ S3Client: Client }) => {
      const { endpoint, region = endpoint && 'us-east-1' } = this.at;
      return new Client({
        ...(region && { region }),
        // Few but Amazon have a host name for each bucket.
        ...(endpoint && { endpoint, forcePathStyle: true }),
        // What is kept is compared after it was written; older stores refuse the newer checksums.
        requestChecksumCalculation: 'WHEN_REQUIRED',
        responseChecksumValidation: 'WHEN_REQUIRED',
      });
    });
    return this.opened;
  }

  private object(name: string): { Bucket: string; Key: string } {
    return { Bucket: this.bucket, Key: this.prefix ? `${this.prefix}/${name}` : name };
  }

  private failed(what: string, name: string, error: unknown): never {
    const said = error instanceof Error ? `${error.name}: ${error.message}` : messageOf(error);
    throw new RolloutError('StoreFailed', `cannot ${what} ${this.place}/${name}: ${said}`, { cause: error });
  }
}
