//! Module tcp: the kernel's view of the client's connection.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, DONE, Table, log, shown};

pub(crate) static MODULE: Table = Table {
    name: "tcp",
    functions: &[
        ("congestion_algorithm", congestion_algorithm),
        ("dump_info", dump_info),
        ("get_estimated_rtt", get_estimated_rtt),
        ("set_socket_pace", set_socket_pace),
    ],
    objects: &[],
    suspends: &[],
};

fn congestion_algorithm<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let algorithm = shown(args.str(0));
    if ctx.host.tcp_congestion(&algorithm) {
        return Ok(Value::Int(0));
    }
    log(ctx, Tag::VCL_Error, format!("TCP_CONGESTION setsockopt() for \"{algorithm}\" failed."));
    Ok(Value::Int(-1))
}

fn dump_info<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let Some(i) = ctx.host.tcp_info() else {
        log(ctx, Tag::VCL_Error, "getsockopt() failed");
        return DONE;
    };
    let text = format!(
        "tcpi: snd_mss={} rcv_mss={} lost={} retrans={}",
        i.send_mss, i.receive_mss, i.lost, i.retransmitting
    );
    log(ctx, Tag::VCL_Log, text);
    let text = format!(
        "tcpi2: pmtu={} rtt={} rttvar={} snd_cwnd={} advmss={} reordering={}",
        i.path_mtu, i.rtt, i.rtt_variation, i.congestion_window, i.advertised_mss, i.reordering
    );
    log(ctx, Tag::VCL_Log, text);
    DONE
}

fn get_estimated_rtt<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let Some(info) = ctx.host.tcp_info() else {
        log(ctx, Tag::VCL_Error, "getsockopt() failed");
        return Ok(Value::Real(0.0));
    };
    Ok(Value::Real(f64::from(info.rtt / 1000)))
}

fn set_socket_pace<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let rate = args.int(0);
    if ctx.host.tcp_pace(rate) {
        log(ctx, Tag::VCL_Log, format!("vmod-tcp: Socket paced to {rate} KB/s."));
    } else {
        log(ctx, Tag::VCL_Error, "set_socket_pace(): Error setting pace rate.");
    }
    DONE
}
