//! Parameters of the cache: lifetimes, bans, storage, and what a fetch may do.

macro_rules! cache_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

default_ttl: Duration = "2m" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "How long an object is fresh when neither the backend nor VCL says so.";
default_grace: Duration = "10s" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "How long an object may still be served after it has expired, while a new copy is being fetched.";
default_keep: Duration = "0s" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "How long an expired object is kept beyond its grace, so that the backend can be asked whether it \
     has changed instead of for a new copy.";
uncacheable_ttl: Duration = "2m" { units = "seconds", min = "0", flags = OBJ_STICKY }
    "How long the cache remembers that a response could not be cached.";
shortlived: Duration = "10.000" { units = "seconds", min = "0" }
    "Objects whose ttl, grace and keep add up to less than this live in Transient storage.";
clock_skew: Uint = "10" { units = "seconds", min = "0" }
    "How far a backend's clock may differ from ours before its dates are distrusted.";
clock_step: Duration = "1.000" { units = "seconds", min = "0" }
    "How large a jump of the system clock is tolerated.";
ban_dups: Bool = "on" { units = "bool" }
    "When a ban is added, retire older bans that are identical to it. Costs a little for each new ban \
     and saves testing objects twice.";
ban_cutoff: Uint = "0" { units = "bans", min = "0", flags = EXPERIMENTAL }
    "Keeps the list of bans shorter than this: objects that have not been tested since the ban in this \
     position are removed from the cache by the ban lurker. A safety net against slow lookups when \
     bans are added faster than they can be worked off. 0 switches it off.";
ban_lurker_age: Duration = "60" { units = "seconds", min = "0" }
    "The ban lurker leaves bans alone that are younger than this, because bans tend to come in bursts.";
ban_lurker_batch: Uint = "1000" { min = "1" }
    "After examining this many objects the ban lurker sleeps for ban_lurker_sleep.";
ban_lurker_sleep: Duration = "0.010" { units = "seconds", min = "0" }
    "How long the ban lurker sleeps after ban_lurker_batch objects. 0 switches the lurker off.";
ban_lurker_holdoff: Duration = "0.010" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "How long the ban lurker steps back when lookups want the same lock.";
ban_any_variant: Uint = "10000" { units = "checks", min = "0" }
    "How many variants that do not match the request are tested against the bans during one lookup. \
     0 tests the matching variants only.";
vary_notice: Uint = "10" { units = "variants", min = "1" }
    "A lookup that compares more variants than this logs a Notice.";
lru_interval: Duration = "2.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "An object that was moved to the front of the LRU list this recently is not moved again.";
nuke_limit: Uint = "50" { units = "allocations", min = "0", flags = EXPERIMENTAL }
    "How many objects may be evicted to make room for a body, for each megabyte of it.";
fetch_chunksize: Bytes = "16k" { units = "bytes", min = "4k", flags = EXPERIMENTAL }
    "How much storage a fetch asks for at a time when it does not know the length. Should be more than \
     most objects need.";
fetch_maxchunksize: Bytes = "0.25G" { units = "bytes", min = "64k", flags = EXPERIMENTAL }
    "The largest piece of storage that is allocated in one go.";
transit_buffer: Bytes = "1M" { units = "bytes", min = "0k" }
    "How far a fetch of an uncacheable response may run ahead of its client; 0 is no limit (the default \
     of Varnish). The limit keeps large responses to slow clients from being stored whole, at the price \
     of holding the backend connection until the client has all but that much. Responses that go into \
     the cache are not limited, and neither are those without beresp.do_stream. Default of \
     beresp.transit_buffer.";
critbit_cooloff: Duration = "180.000" { units = "seconds", min = "60.000", max = "254.000", flags = WIZARD }
    "How long removed index nodes are kept before they are reused.";
gzip_buffer: Bytes = "32k" { units = "bytes", min = "2k", flags = EXPERIMENTAL }
    "Size of the buffer through which bodies are compressed and decompressed: the most that gzip, gunzip, ESI \
     or range make of a body before that was sent or stored. More than 64k counts as 64k.";
gzip_level: Uint = "6" { min = "0", max = "9" }
    "Compression level: 1 is fast, 9 is small, 0 stores without compressing.";
gzip_memlevel: Uint = "8" { min = "1", max = "9" }
    "Memory for compression: 1 is little and slow, 9 is much and fast.";
http_gzip_support: Bool = "on" { units = "bool" }
    "Ask backends for compressed responses, store them compressed and decompress for clients that need \
     it. When on, Accept-Encoding of clients that take gzip becomes exactly gzip and is removed for all \
     others. When off, beresp.do_gzip and beresp.do_gunzip have no effect.";
max_esi_depth: Uint = "5" { units = "levels", min = "0" }
    "How deeply esi:include may be nested.";
rush_exponent: Uint = "3" { units = "requests per request", min = "2", flags = EXPERIMENTAL }
    "How many waiting requests are woken by each one that completes.";
    } };
}
