// The messages of the admin listener that the page reads, for the type checker. docs/admin.md describes them.

interface Latencies { count: number; p50: number | null; p95: number | null; p99: number | null; max: number | null }
/** A page as the cache looks it up, and as a client asked for it, if that differs. */
interface Page { url: string; asked: string | null }
interface Totals { limits: number[]; hits: number[]; misses: number[] }

interface Origin {
  name: string;
  health: string | null;
  set_by_operator: boolean;
  requests_per_second: number;
  last_minute: { errors: number; mean_seconds: number | null };
  failures: number;
  connections: number;
}

interface Store {
  name: string;
  kind: string;
  fill: number | null;
  used: number;
  free: number;
  objects: number | null;
  failures: number;
  state: string | null;
}

interface StorageState { objects: number; evictions_per_second: number; expired_per_second: number; stores: Store[] }

interface Snapshot {
  time: number;
  status: string;
  reason: string;
  daemon: string;
  uptime: number;
  traffic: {
    last_10_seconds: { seconds: number; fetches: number; requests_per_second: number; hit_ratio: number | null; bytes_out_per_second: number };
    last_minute: { hit_ratio: number | null };
    since_start: { requests: number; hits: number; bytes_out: number };
  };
  connections: { open: number; waiting: number };
  latency: { totals: Totals; hits: Latencies; misses: Latencies };
  origins: Origin[];
  origin_counts: { all: number; sick: number };
  storage: StorageState;
  busiest: (Page & { requests: number; hit_ratio: number | null })[];
  missed: (Page & { requests: number; mean_seconds: number | null })[];
  slowest: (Page & { seconds: number; status: string })[];
}

interface Ban { time: number; refs: number; completed: boolean; tests?: string[]; ban?: string; spec?: string }
interface Vcl { name: string; status: string; state?: string; temperature?: string }
interface StorageAges { name: string; objects?: number; ages?: { limits: number[]; objects: number[] }; disks?: { path: string; oldest: number | null }[] }
// A list is null if the daemon has not sent it.
interface Lists { bans: Ban[] | null; ban_count: number | null; tags: number | null; vcls: Vcl[] | null; storages: StorageAges[] | null; record_length: number | null }

interface LogLine {
  time: string;
  epoch: number;
  client: string | null;
  method: string | null;
  host: string | null;
  url: string | null;
  status: number | null;
  handling: string;
  bytes: number;
  seconds: number;
}

interface Why {
  request: string;
  outcome: string;
  explanation?: string;
  steps?: { name: string; lines: string[] }[];
  advice?: string;
  notes?: string[];
}

type Cell = string | number | Node | (string | number)[];
