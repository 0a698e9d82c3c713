"""A stand-in of package registries and a git server: writes their files into the current directory, and serves them over
HTTPS (first port) and HTTP (second port) at the address of the first argument. The log has each request with its `host`."""
import base64, hashlib, http.server, io, json, os, ssl, subprocess, sys, tarfile, threading, zipfile

ADDRESS, HOST = sys.argv[1], sys.argv[2]

def write(path, content):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'wb') as file:
        file.write(content if isinstance(content, bytes) else content.encode())

def archive(root, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(root + '/' + name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def __init__(self, *rest):
        super().__init__(*rest, directory='www')

    def log_message(self, *_):
        with open('log', 'a') as log:
            log.write(f'{self.command} {self.path} {self.headers.get("host")}\n')

def server(tls):
    server = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain('cert', 'key')
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server

subprocess.run(['sh', '-ec', f'''
exec 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out request -subj /CN={HOST}
printf 'subjectAltName=DNS:{HOST},DNS:other.test\\nbasicConstraints=CA:FALSE\\n' > more
openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out cert -days 2 -extfile more
git init -q -b main work && cd work && echo from git > f && git add f
git -c user.name=a -c user.email=a@b commit -q -m first && cd ..
git clone -q --bare work www/repo.git && git -C www/repo.git update-server-info
'''], check=True)
secure, plain = server(True), server(False)
origin = f'https://{HOST}:{secure.server_port}'
write('www/page', 'page\n')

package = archive('package', {'package.json': json.dumps({'name': 'left', 'version': '1.0.0'}), 'index.js': 'module.exports = "from npm"\n'})
integrity = 'sha512-' + base64.b64encode(hashlib.sha512(package).digest()).decode()
write('www/left/-/left-1.0.0.tgz', package)
write('client/package.json', json.dumps({'name': 'x', 'version': '1.0.0', 'dependencies': {'left': '1.0.0'}}))
write('client/package-lock.json', json.dumps({'name': 'x', 'version': '1.0.0', 'lockfileVersion': 3, 'packages': {
    '': {'name': 'x', 'version': '1.0.0', 'dependencies': {'left': '1.0.0'}},
    'node_modules/left': {'version': '1.0.0', 'resolved': f'{origin}/left/-/left-1.0.0.tgz', 'integrity': integrity}}}))

wheel = io.BytesIO()
with zipfile.ZipFile(wheel, 'w') as files:
    files.writestr('left.py', 'text = "from pip"\n')
    files.writestr('left-1.0.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: left\nVersion: 1.0.0\n')
    files.writestr('left-1.0.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    files.writestr('left-1.0.0.dist-info/RECORD', '')
write('www/simple/left/index.html', '<a href="/files/left-1.0.0-py3-none-any.whl">left-1.0.0-py3-none-any.whl</a>')
write('www/files/left-1.0.0-py3-none-any.whl', wheel.getvalue())

crate = archive('left-1.0.0', {'Cargo.toml': '[package]\nname = "left"\nversion = "1.0.0"\nedition = "2021"\n', 'src/lib.rs': ''})
write('www/index/config.json', json.dumps({'dl': f'{origin}/crates'}))
write('www/index/le/ft/left', json.dumps({'name': 'left', 'vers': '1.0.0', 'deps': [], 'cksum': hashlib.sha256(crate).hexdigest(),
                                          'features': {}, 'yanked': False}) + '\n')
write('www/crates/left/1.0.0/download', crate)
write('client/Cargo.toml', '[package]\nname = "x"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
      'left = { version = "1", registry = "mine" }\n')
write('client/src/lib.rs', '')

threading.Thread(target=secure.serve_forever, daemon=True).start()
print(secure.server_port, plain.server_port, flush=True)
plain.serve_forever()
