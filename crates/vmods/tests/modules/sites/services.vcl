// Services beside the origins: Redis, requests of VCL, files, databases of addresses, tokens, signatures.
vcl 4.1;

import blob;
import crypto;
import fileserver;
import geoip;
import json;
import jwt;
import netmapper;
import querysort;
import redis;
import reqwest;
import s3;
import std;
import uuid;

probe health { .url = "/"; }

backend default none;

sub vcl_init {
    redis.subnets(masks = "0 192.168.1.102/32,1 192.168.1.103/32");
    new db = redis.db(
        location="192.168.1.100:6379",
        type=master,
        connection_timeout=500,
        shared_connections=false,
        max_connections=1);
    db.add_server("192.168.1.101:6379", slave);
    new sessions = redis.db(
        location = "127.0.0.1:6379", type = auto, connection_timeout = 500, connection_ttl = 0, command_timeout = 100,
        max_command_retries = 1, shared_connections = true, max_connections = 32, password = "secret",
        sickness_ttl = 60, ignore_slaves = false);
    new api = reqwest.client(
        base_url = "https://api.example.com", follow = 5, timeout = 5s, connect_timeout = 1s, auto_gzip = true,
        https_proxy = "http://proxy.example.com:3128");
    new origin = reqwest.client(base_url = "https://www.example.com", probe = health);
    new www = fileserver.root("/var/www/html/");
    netmapper.init("partners", "/var/lib/netmapper/partners.json", 89);
    new token = jwt.reader();
    new account = s3.signer("key", "secret", region = "eu-central-1");
    new signature = crypto.verifier(sha256, std.fileread("/etc/lacquer/public.pem"));
}

sub vcl_recv {
    set req.http.X-Request-Id = uuid.uuid_v4();
    set req.url = querysort.querysort(req.url);
    set req.http.X-Country = geoip.country_code(client.ip);
    set req.http.X-Country-Name = geoip.country_name("" + client.ip);
    set req.http.X-Partner = netmapper.map("partners", "" + client.ip);

    if (req.http.Authorization && (!token.parse(req.http.Authorization) || !token.set_key("secret") || !token.verify("HS256"))) {
        return (synth(401));
    }
    set req.http.X-User = token.get_sub();

    db.easy_execute("GET", "key:" + req.http.Host);
    if (db.reply_is_error()) {
        std.log(db.get_error_reply());
    } else if (!db.reply_is_nil()) {
        set req.http.X-Value = db.get_string_reply();
    }
    redis.use("sessions");
    redis.command("INCR");
    redis.push("hits");
    redis.execute();
    set req.http.X-Hits = redis.get_integer_reply();

    api.init("auth", "https://auth.example.com/check", "POST");
    api.set_header("auth", "X-User", req.http.X-User);
    api.set_body("auth", "{}");
    api.send("auth");
    if (api.status("auth") != 200) {
        std.log(api.error("auth") + api.header("auth", "Retry-After"));
        return (synth(403));
    }
    json.parse(api.body_as_string("auth"));
    set req.http.X-Group = json.get("user.group", "none");

    if (req.url ~ "^/static/") {
        set req.backend_hint = www.backend();
    } else {
        set req.backend_hint = origin.backend();
    }
    signature.update(req.url);
    if (req.http.X-Signature && !signature.valid(blob.decode(BASE64, encoded = req.http.X-Signature))) {
        return (synth(403));
    }
}

sub vcl_backend_fetch {
    if (bereq.http.Host == "bucket.s3.amazonaws.com") {
        account.sign();
    }
}

sub vcl_deliver {
    db.command("EVAL");
    db.timeout(500);
    db.retries(1);
    db.push({"return redis.call('SET', KEYS[1], ARGV[1])"});
    db.push("1");
    db.push(req.url);
    db.push(resp.status);
    db.execute();
    if (db.replied() && db.reply_is_status()) {
        set resp.http.X-Stored = db.get_status_reply();
    }
    db.command("MGET");
    db.push("a");
    db.push("b");
    db.execute(master = false);
    if (db.reply_is_array() && db.get_array_reply_length() > 0 && db.array_reply_is_string(0)) {
        set resp.http.X-First = db.get_array_reply_value(0);
    }
    db.free();
}
