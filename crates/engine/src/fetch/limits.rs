//! The limits that apply to connections to an origin: VCL's, the backend's, or those of the parameters.

use std::time::Duration;

use lacquer_flow::reuse::Lifespan;
use lacquer_net::endpoint::Holddown;
use lacquer_params::Params;

use crate::backends::Origin;
use crate::surplus;

/// Returns the timeout that applies: VCL's, else the backend's, else the parameter's.
pub fn choose(own: Option<f64>, spec: Option<f64>, param: f64) -> f64 {
    own.or(spec.filter(|&t| t >= 0.0)).unwrap_or(param)
}

/// Returns the limits on the use of connections: the backend's, else the parameters'.
#[inline]
pub fn lifespan(origin: &Origin, params: &Params) -> Lifespan {
    let own = &origin.spec.limits;
    Lifespan {
        requests: own.max_requests.unwrap_or(params.backend_max_requests),
        age: own.max_age.unwrap_or(params.backend_max_age),
    }
}

/// The limits for opening a connection.
pub struct Limits {
    pub connect: f64,
    pub prefer_ipv6: bool,
    pub quiet: Duration,
    pub holddown: Holddown,
    pub lifespan: Lifespan,
}

impl Limits {
    pub fn of(origin: &Origin, p: &Params, own: Option<f64>) -> Limits {
        Limits {
            connect: choose(own, origin.spec.limits.connect_timeout, p.connect_timeout),
            prefer_ipv6: p.prefer_ipv6,
            quiet: surplus::quiet_time(p),
            holddown: Holddown::of(p),
            lifespan: lifespan(origin, p),
        }
    }
}
