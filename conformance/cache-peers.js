// The caches that conformance/cache-tests --peers compares: each with the settings of its package, a cache in front of
// one origin, and nothing else.

const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')

const ROOT = path.dirname(__dirname)
const FOLDERS = [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/sbin', '/usr/local/sbin']

/** Returns the path of a program, or undefined if it is not installed. */
function find (program) {
  return FOLDERS.map(folder => path.join(folder, program)).find(file => fs.existsSync(file))
}

/** Returns the first version number that a command prints, or an empty text. */
function version (file, args) {
  const options = { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }
  try {
    // Some programs print their version to the standard error.
    const text = execFileSync('sh', ['-c', '"$0" "$@" 2>&1', file, ...args], options)
    return /\d+\.\d+(\.\d+)?/.exec(text)?.[0] ?? ''
  } catch {
    return ''
  }
}

/** Creates a folder that a server may write to after it has dropped its privileges. */
function folder (...parts) {
  const made = path.join(...parts)
  fs.mkdirSync(made, { recursive: true })
  fs.chmodSync(made, 0o777)
  return made
}

function write (dir, name, text) {
  const file = path.join(dir, name)
  fs.writeFileSync(file, text)
  return file
}

const nginx = (dir, port, origin) => `
daemon off;
pid ${dir}/pid;
error_log ${dir}/error.log;
events { worker_connections 512; }
http {
  access_log off;
  proxy_cache_path ${folder(dir, 'cache')} levels=1:2 keys_zone=all:8m max_size=64m inactive=600m;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(name => `${name}_temp_path ${dir}/${name};`).join(' ')}
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://127.0.0.1:${origin};
      proxy_http_version 1.1;
      proxy_cache all;
      proxy_cache_revalidate on;
    }
  }
}
`

const squid = (dir, port, origin) => `
http_port 127.0.0.1:${port} accel defaultsite=localhost no-vhost
cache_peer 127.0.0.1 parent ${origin} 0 no-query no-digest originserver name=origin
cache_peer_access origin allow all
http_access allow all
cache_mem 64 MB
access_log none
cache_log ${dir}/cache.log
pid_filename ${dir}/pid
coredump_dir ${dir}
shutdown_lifetime 0 seconds
visible_hostname localhost
connect_retries 3
`

const TRAFFIC_SERVER = {
  'records.config': (dir, port) => `
CONFIG proxy.config.http.server_ports STRING ${port}:ip-in=127.0.0.1
CONFIG proxy.config.http.cache.ignore_client_cc_max_age INT 1
CONFIG proxy.config.http.cache.required_headers INT 2
CONFIG proxy.config.http.insert_response_via_str INT 0
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.reverse_proxy.enabled INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.admin.user_id STRING trafficserver
`,
  'remap.config': (dir, port, origin) => `map / http://127.0.0.1:${origin}/\n`,
  'storage.config': dir => `${folder(dir, 'cache')} 64M\n`,
  'ip_allow.yaml': () => 'ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n',
  'plugin.config': () => '',
  'runroot.yaml': dir => [
    `prefix: ${dir}`, `exec_prefix: ${dir}`, 'bindir: /usr/bin', 'sbindir: /usr/sbin', `sysconfdir: ${dir}`,
    `datadir: ${dir}/cache`, 'includedir: /usr/include', 'libdir: /usr/lib/trafficserver',
    'libexecdir: /usr/lib/trafficserver/modules', `localstatedir: ${dir}`, `runtimedir: ${folder(dir, 'run')}`,
    `logdir: ${folder(dir, 'log')}`, `cachedir: ${dir}/cache`, ''
  ].join('\n')
}

/** Returns the path of Varnish 7.7, which conformance/fetch-tools downloads, or of the one that is installed. */
function varnish () {
  try {
    const tools = execFileSync(path.join(ROOT, 'conformance/fetch-tools'), { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    const file = path.join(tools.trim(), 'peer-varnishd')
    if (fs.existsSync(file)) return file
  } catch {}
  return find('varnishd')
}

/**
 * Returns the peers that are installed: name, version, and a function from a folder, the port to listen on and the
 * origin's port to the command that starts the server.
 */
function peers () {
  const all = [
    ['Varnish', varnish(), ['-V'], (file, dir, port, origin) =>
      [file, '-F', '-j', 'none', '-a', `127.0.0.1:${port}`, '-b', `127.0.0.1:${origin}`, '-n', path.join(dir, 'name'), '-s', 'malloc,64M']],
    ['nginx', find('nginx'), ['-v'], (file, dir, port, origin) =>
      [file, '-p', dir, '-c', write(dir, 'nginx.conf', nginx(dir, port, origin))]],
    ['Squid', find('squid'), ['-v'], (file, dir, port, origin) =>
      [file, '-N', '-f', write(dir, 'squid.conf', squid(dir, port, origin))]],
    ['Traffic Server', find('traffic_server'), ['--version'], (file, dir, port, origin) => {
      for (const [name, text] of Object.entries(TRAFFIC_SERVER)) write(dir, name, text(dir, port, origin))
      return [file, `--run-root=${dir}/runroot.yaml`]
    }]
  ]
  return all.filter(([, file]) => file).map(([name, file, ask, command]) => ({
    name,
    version: version(file, ask),
    command: (dir, port, origin) => command(file, folder(dir), port, origin)
  }))
}

module.exports = { peers }
