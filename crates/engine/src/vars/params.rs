//! The variables `param.*`, by which VCL reads parameters.

use lacquer_params::Params;
use lacquer_vcl::variables_table::Var;

use super::shown;

/// Returns the value of a parameter that is a duration.
pub fn duration(p: &Params, var: Var) -> Option<f64> {
    Some(shown(match var {
        Var::ParamBackendIdleTimeout => p.backend_idle_timeout,
        Var::ParamBackendWaitTimeout => p.backend_wait_timeout,
        Var::ParamBetweenBytesTimeout => p.between_bytes_timeout,
        Var::ParamConnectTimeout => p.connect_timeout,
        Var::ParamDefaultGrace => p.default_grace,
        Var::ParamDefaultKeep => p.default_keep,
        Var::ParamDefaultTtl => p.default_ttl,
        Var::ParamFirstByteTimeout => p.first_byte_timeout,
        Var::ParamIdleSendTimeout => p.idle_send_timeout,
        Var::ParamPipeTaskDeadline => p.pipe_task_deadline,
        Var::ParamPipeTimeout => p.pipe_timeout,
        Var::ParamSendTimeout => p.send_timeout,
        Var::ParamShortlived => p.shortlived,
        Var::ParamTimeoutIdle => p.timeout_idle,
        Var::ParamUncacheableTtl => p.uncacheable_ttl,
        _ => return None,
    }))
}

/// Returns the value of a parameter that is a number or a size.
pub fn int(p: &Params, var: Var) -> Option<i64> {
    Some(match var {
        Var::ParamBackendWaitLimit => i64::from(p.backend_wait_limit),
        Var::ParamMaxEsiDepth => i64::from(p.max_esi_depth),
        Var::ParamMaxRestarts => i64::from(p.max_restarts),
        Var::ParamMaxRetries => i64::from(p.max_retries),
        Var::ParamTransitBuffer => i64::try_from(p.transit_buffer).unwrap_or(i64::MAX),
        _ => return None,
    })
}
