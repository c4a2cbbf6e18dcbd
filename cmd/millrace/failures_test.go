package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/ingest/streams"
	"millrace/server"
)

// failures are wrong ways to call the program, with the exit status and a part of the message. HTTP stands for the
// address of a server, TLS for the address of a server with TLS, and NOBODY for an address without a listener. The
// stream door is configured.
var failures = []struct {
	args string
	code int
	want string
}{
	{"nosuch", 2, `"nosuch" is not a command of millrace: there are api-schema, `},
	{"serv", 2, "did you mean serve?"},
	{"--nosuch", 2, "--nosuch: is not a flag of millrace"},
	{"help nosuch", 2, `"nosuch" is not a command of millrace`},
	{"help models nosuch", 2, `"nosuch" is not a command of models: there are load, scale, show, swap, unload`},
	{"completion nosuch", 2, `"nosuch" is not a command of completion: there are bash`},
	{"completion bash x", 2, "completion bash takes no arguments"},
	{"version x", 2, `version takes no arguments, and "x" is one`},
	{"config x", 2, "config takes no arguments"},
	{"config --json --markdown", 2, "--json, --markdown and --yaml exclude each other"},
	{"config --all --markdown", 2, "--yaml writes all"},
	{"config --jsn", 2, "--jsn: is not a flag of config (did you mean --json?)"},

	{"serve a b", 2, "serve takes [SOURCE] [-- ARG...]: 2 given. Several models: --model NAME=SOURCE for each"},
	{"serve a --port 80", 2, "--port: is not a flag of serve: use --http 127.0.0.1:PORT"},
	{"run a.py --timeout 30", 2, "--timeout: is not a flag of run. Arguments of the program follow on --"},
	{"serve a --class B", 2, "--class: is not a flag of serve: use FILE.py:CLASS as the source"},
	{"serve a", 1, `SOURCE: "a" is not a kind of worker`},
	{"serve motion -- x", 2, `--: "motion" takes no arguments: it is a model of kind motion`},
	{"serve -- x", 2, "--: what follows are arguments of SOURCE, which is missing"},
	{"serve motion --root nosuch", 1, `--root: is "nosuch", which is not the name of a model`},
	{"serve motion --replicas 0", 2, "--replicas: 0 is not allowed"},
	{"serve motion --watch=maybe", 2, `--watch: "maybe" is not true or false`},
	{"run", 2, "run takes SOURCE [-- ARG...]: 0 given"},
	{"run -- x", 2, "run takes SOURCE [-- ARG...]: 0 given"},
	{"run motion", 2, `run: "motion" is a model of kind motion, not a program: use millrace serve`},
	{"run none.xyz", 1, `SOURCE: "none.xyz" `},
	{"init a b", 2, "init takes [FOLDER]: 2 given"},
	{"init text.jpg", 1, "init: "},
	{"init folder/../written --jsn", 2, "--jsn: is not a flag of init (did you mean --json?)"},
	{"serve --config", 2, "--config: its value is missing"},
	{"serve --config=", 2, "--config: is empty"},
	{"serve --config none.yaml", 1, "--config: open none.yaml: no such file"},
	{"serve --config folder", 1, "--config: folder is a folder"},
	{"serve --config key.yaml", 1, "key.yaml:1: htp: is "},
	{"serve --config form.yaml", 1, "form.yaml:3: "},
	{"serve none.onnx", 1, `SOURCE: "none.onnx" cannot be read`},
	{"serve ./folder", 1, `SOURCE: "./folder" is a folder: name the program in it, such as ./service.py, or serve a ` +
		`folder of models by --model-repository`},
	{"serve ./text.jpg", 1, `SOURCE: "./text.jpg" `},
	{"serve nokind", 1, `SOURCE: "nokind" is `},
	{"serve motion --model motion=delay", 1, `.name: "motion" is the name of models[0] already`},
	{"serve --model a", 2, `--model: "a" is not NAME=SOURCE`},
	{"serve --model =motion", 2, `--model: "=motion" is not NAME=SOURCE`},
	{"serve --model a=motion --model a=motion", 2, `--model: "a" is given twice`},
	{"serve --model a=motion,nosuch=1", 2,
		"--model a.nosuch: is neither a setting of a model nor a parameter of motion"},
	{"serve --model a=motion,width=-1", 2, "--model a.width: -1 is not between 16 and 2048"},
	{"serve --model a=motion,width=x", 2, `--model a.width: "x" is not a whole number`},
	{"serve --model a=motion,instances=0", 2, "--model a.instances: 0 is not allowed"},
	{"serve --model a=identity,batching.max_delay=3ms", 1,
		"--model a.batching.max_delay: is a setting of the batcher soft, and batching.kind is adaptive"},
	{"serve --model a=identity,batching.kind=soft,batching.slack=3ms", 1,
		"--model a.batching.slack: is a setting of the batcher deadline"},
	{"serve --model a=motion,output.track_iou=0.4", 1, "--model a.output.track_iou: is set without output.track"},
	{"serve --model a=nokind", 1, `--model a.source: "nokind" is `},
	{"serve --model a=identity,gate.refresh=3s", 1, "--model a.gate.refresh: is set without gate.changed"},
	{"serve --model a=motion,output.labels=x.txt", 1, "--model a.output.labels: is set"},
	{"serve --grpc off --http 127.0.0.1:0 --model a=identity,output.boxes.threshold=0.4", 1,
		"--model a.output.boxes.boxes: no output of the model"},
	{"serve --grpc off --http 127.0.0.1:0 --model a=delay,input.image.width=5", 1, "--model a.input.image: is set"},
	{"serve --grpc off --http 127.0.0.1:0 motion --memory-budget 1MiB", 1, "millrace: batching.max_size: 8 rows"},
	{"serve motion --grpc off --http HTTP", 1, " is in use: end the program that listens there"},
	{"serve motion --grpc HTTP --http 127.0.0.1:0", 1, "--grpc: "},
	{"serve motion --http 127.0.0.1:99999", 2, `--http: "127.0.0.1:99999" has no port between 0 and 65535`},
	{"serve motion --http 127.0.0.1", 2, `--http: "127.0.0.1" is not an address: want HOST:PORT`},
	{"serve motion --http 192.0.2.1:1 --grpc off --insecure", 1,
		"--http: 192.0.2.1:1 is not an address of this machine: choose"},
	{"serve motion --http off --grpc off", 1, "--http: and grpc are both off"},
	{"serve motion --limits-max-body 1", 2, "--limits-max-body: 1 is not between 1KiB and 1GiB"},
	{"serve motion --limits-max-body x", 2, `--limits-max-body: "x" is not a size such as 8MiB`},
	{"serve motion --limits-max-sessions 0", 2, "--limits-max-sessions: 0 is not allowed"},
	{"serve motion --limits-max-sessions -3 --drain x", 2, "\n--drain: \"x\" is not a duration"},
	{"serve motion --drain -1s", 2, "--drain: -1s is negative"},
	{"serve motion --log-level loud", 2, `--log-level: "loud" is unknown: want debug, `},
	{"serve motion --sources-allow-private=maybe", 2, `--sources-allow-private: "maybe" is not true or false`},
	{"serve motion --tls-cert none.pem", 1, "tls.key: is missing: tls.cert needs its key"},
	{"serve motion --tls-cert none.pem --tls-key none.key", 1, "--tls-cert: none.pem with none.key cannot be used"},
	{"serve motion --tls-cert text.jpg --tls-key text.jpg", 1, "--tls-cert: text.jpg with text.jpg cannot be used"},
	{"serve motion --tls-cert x --tls-key y --tls-self-signed", 1,
		"--tls-self-signed: and tls.cert exclude each other"},
	{"serve motion --log-file folder", 1, "--log-file: open folder: is a directory"},
	{"serve motion --http 127.0.0.1:0 --grpc off --streams-file folder", 1, "--streams-file: folder is a folder"},
	{"serve motion --http 127.0.0.1:0 --grpc off --streams-file text.json", 1, "--streams-file: text.json: "},
	{"serve motion --http 127.0.0.1:0 --grpc off --streams-file none/x.json", 1, "--streams-file: cannot be written: "},
	{"serve motion --http 127.0.0.1:0 --grpc off --hosts http://x/", 1,
		`--hosts: "http://x/" is not the name of a host: want `},
	{"serve motion --http 127.0.0.1:0 --grpc off --origins x", 1, `--origins: "x" is not a web origin: want `},
	{"check a b", 2, "check takes [SOURCE]: 2 given"},
	{"check --limits-max-body 1", 2, "--limits-max-body: 1 is not between"},

	{"models nosuch", 2, `"nosuch" is not a command of models`},
	{"models --addr NOBODY", 1, "connection refused; start a server with millrace serve, or give its --addr"},
	{"models --addr ftp://127.0.0.1:1", 2, `--addr: "ftp://127.0.0.1:1" is not the address of a server: want `},
	{"models --addr http://127.0.0.1:99999", 2, "--addr: "},
	{"models --addr HTTP?x=1", 2, "--addr: "},
	{"models --addr TLS", 1, "give --addr https://HOST:PORT"},
	{"models --addr https://TLS --ca folder", 1, "--ca: read folder: is a directory"},
	{"models --addr https://TLS --fingerprint 12", 2, `--fingerprint: "12" is not a SHA-256: want `},
	{"models --addr https://TLS", 1, "trust the server's certificate with --ca FILE"},
	{"models --ca x.pem", 2, "--ca and --fingerprint are for encrypted connections: give --addr https://"},
	{"bench --model both --request x.json --tensor --addr HTTP", 2, "--tensor: has no effect with --request"},
	{"bench --model both --request x.json --addr HTTP", 1, "--request: open x.json"},
	{"bench --model both --request x.json --protocol v1 --addr HTTP", 2, "--request: is for --protocol rest, not v1"},
	{"models --kinds --addr HTTP", 2, "--addr: has no effect with --kinds"},
	{"models show", 2, "models show takes MODEL: 0 given"},
	{"models show nosuch --addr HTTP", 1, `model: "nosuch" is not loaded: see millrace models`},
	{"models show smae --addr HTTP", 1, `model: "smae" is not loaded (did you mean same?)`},
	{"models show same --version 7 --addr HTTP", 1, "--version: model same has version 1"},
	{"models unload fnid --addr HTTP", 1, `model: "fnid" is not loaded (did you mean find?)`},
	{"models shwo same", 2, `"shwo" is not a command of models (did you mean show?)`},
	{"models show '' --addr HTTP", 1, "model: is missing"},
	{"models load nosuch --addr HTTP", 1, "is neither a model of the configuration nor a kind of worker"},
	{"models load delay --name x --addr HTTP", 2,
		`--name: is for a model that is loaded from a file: "delay" is a name already`},
	{"models load smae --addr HTTP", 1, "(did you mean same?)"},
	{"models load motio --addr HTTP", 1, "(did you mean motion?)"},
	{"models load delay fixed --addr HTTP", 2, `"fixed" is neither key=value nor a file that is here`},
	{"models swap live ./iris.onnx --addr HTTP", 1, `"./iris.onnx" cannot be read`},
	{"models swap live iris.py --addr HTTP", 2, `"iris.py" is neither key=value nor a file that is here`},
	{"models load ./iris.onnx ./iris.onnx --name live --addr HTTP", 2, `"./iris.onnx" is neither key=value`},
	{"models load live ./iris.onnx --name other --addr HTTP", 2,
		`--name: is for a model that is loaded from a file: "live" is a name already`},
	{"models load ./one.onnx ./two.onnx --addr HTTP", 2, `"./two.onnx" is neither key=value`},
	{"models load delay fixed=1ms fixed=2ms --addr HTTP", 2, "fixed: is given twice"},
	{"models load delay fixed=x --addr HTTP", 1, `millrace: fixed: "x" is not a duration`},
	{"models load delay fixed=x instances=y batching.max_size=z --addr HTTP", 1,
		"millrace: batching.max_size: \"z\" is not a whole number\nfixed: \"x\" is not a duration such as 5ms or " +
			"10s\ninstances: \"y\" is not a whole number\n"},
	{"models load delay fixd=1ms --addr HTTP", 1, "millrace: fixd: is "},
	{"models load delay instances=100 --addr HTTP", 1,
		"millrace: instances: 100 is more than the 64 that a request may ask for"},
	{"models load delay output.labels=x --addr HTTP", 1,
		"millrace: output.labels: can only be set in the server's configuration"},
	{"models load same per_item=2 --addr HTTP", 1, "millrace: per_item: is "},
	{"models load delay max_delay=2s --addr HTTP", 1, "millrace: batching.max_delay: is a setting of the batcher soft"},
	{"models load soft batcher=adaptive max_delay=2s --addr HTTP", 1,
		"millrace: batching.max_delay: is a setting of the batcher soft"},
	{"models scale find", 2, "models scale takes MODEL INSTANCES: 1 given"},
	{"models scale find 0", 2, `"0" is not a number of workers: want 1 or more`},
	{"models scale fnid 2 --addr HTTP", 1, `model: "fnid" is not loaded (did you mean find?)`},
	{"models scale find 65 --addr HTTP", 1, "instances: 65 is more than the 64 that a request may ask for"},
	{"models unload nosuch --addr HTTP", 1, `model: "nosuch" is not loaded`},
	{"models unload a b", 2, "models unload takes ENDPOINT: 2 given"},

	{"infer find {} --addr HTTP", 1, "PICTURE: is JSON, not the name of a file: a request in JSON is read from a " +
		"file by --request"},
	{"infer", 2, "infer takes MODEL [PICTURE|FOLDER...]: 0 given"},
	{"infer same", 2, "infer takes either pictures or --request FILE"},
	{"infer same text.jpg --request ok.json", 2, "infer takes either pictures or --request FILE"},
	{"infer same none.jpg", 1, "open none.jpg: no such file"},
	{"infer same folder", 1, "folder: has no file whose name ends in .jpg"},
	{"infer same none.jpg empty.jpg --addr HTTP", 1,
		"open none.jpg: no such file or directory\nmillrace: empty.jpg is empty\nmillrace: 2 of 2 pictures failed"},
	{"infer find text.jpg empty.jpg --addr NOBODY", 1, "start a server with millrace serve"},
	{"infer fnd text.jpg empty.jpg --addr HTTP", 1, `model: "fnd" is not loaded (did you mean find?)`},
	{"infer same text.jpg --overlay x.txt", 2, "--overlay: x.txt does not end in .png or .jpg, and is not a folder"},
	{"infer same text.jpg picture.png --overlay x.png", 2,
		"--overlay: x.png is a file: give a folder for several pictures"},
	{"infer same picture.png folder/../picture.png --overlay folder", 2, "have one name: give them apart"},
	{"infer same text.jpg --overlay text.jpg", 2, "--overlay: would replace the picture text.jpg"},
	{"infer same --request ok.json --overlay x.png", 2, "--overlay: has no effect with --request"},
	{"infer picture2 picture.png --addr HTTP", 1, `model: "picture2" is not loaded`},
	{"infer bare picture.png --addr HTTP", 1, "picture.png: model bare takes tensors, not png frames: for pictures " +
		"as its input image of shape [3 240 320], set input.image in its configuration"},
	{"infer sound picture.png --addr HTTP", 1,
		"picture.png: model sound takes tensors, not png frames: see its inputs with millrace models show sound"},
	{"infer same empty.jpg", 1, "empty.jpg is empty"},
	{"infer find text.jpg --addr HTTP", 1, "text.jpg: is not a JPEG, PNG or WebP picture, nor as long as a tensor " +
		"of model find"},
	{"infer find text.jpg --addr NOBODY", 1, "millrace: the server at 127.0.0.1:1 cannot be reached"},
	{"infer nosuch text.jpg --addr HTTP", 1, `model: "nosuch" is not loaded`},
	{"infer find text.jpg --version 7 --addr HTTP", 1, "--version: model find has version 1"},
	{"infer find text.jpg --deadline-ms -1", 2, "--deadline-ms: -1 is negative"},
	{"infer find text.jpg --deadline-ms 0", 2, "--deadline-ms: 0 is not allowed"},
	{"infer find text.jpg --deadline-ms 5s", 2, `--deadline-ms: "5s" is not a whole number`},
	{"infer find text.jpg --deadline 5s", 2, "--deadline: is not a flag of infer (did you mean --deadline-ms?)"},
	{"infer same --request none.json", 1, "--request: open none.json: no such file"},
	{"infer same --request text.json", 1, "--request: found bad at byte 1"},
	{"infer same --request type.json", 1, `--request: inputs[0].datatype: is "FP33"; expected one of`},
	{"infer same --request output.json --addr HTTP", 1,
		`--request: outputs[0].name: model same has no output "nosuch"`},
	{"infer find --request ok.json --addr HTTP", 1,
		`--request: inputs: unexpected inference input 'x' for model 'find': its inputs are image. Got input(s) ['x']`},

	{"examples", 2, "examples takes MODEL: 0 given"},
	{"examples find --format cobol", 2, `--format: "cobol" is unknown: want curl, python, go or js`},
	{"examples fnd --addr HTTP", 1, `model: "fnd" is not loaded (did you mean find?)`},
	{"examples find --addr NOBODY", 1, "start a server with millrace serve"},
	{"examples find --version 7 --addr HTTP", 1, "--version: model find has version 1"},
	{"api-schema x", 2, "api-schema takes no arguments"},
	{"api-schema --model fnd --addr HTTP", 1, `--model: "fnd" is not loaded (did you mean find?)`},
	{"api-schema --out none/x.json --addr HTTP", 1, "--out: open none/x.json: no such file"},
	{"api-schema --config none.yaml", 1, "--config: open none.yaml: no such file"},
	{"api-schema --config key.yaml", 1, "key.yaml:1: htp: is "},
	{"api-schema --config key.yaml --addr HTTP", 2, "--addr: has no effect with --config"},

	{"stream", 2, "stream takes FILE|URL: 0 given"},
	{"stream text.jpg", 2, "--model is missing: see `millrace models`"},
	{"stream text.jpg --model nosuch --addr HTTP", 1, `--model: "nosuch" is not loaded`},
	{"stream text.jpg --model fnd --addr HTTP", 1, `model: "fnd" is not loaded (did you mean find?)`},
	{"stream text.jpg --model find --addr NOBODY", 1, "start a server with millrace serve"},
	{"stream none.mp4 --model find --addr HTTP", 1,
		"none.mp4: there is nothing at this address (no such file)\nffmpeg's last output: "},
	{"stream folder --model find --addr HTTP", 1, "folder: there is no video in it (it is a folder)"},
	{"stream /dev/video99 --model find --loop --addr HTTP", 1,
		"--loop: is for files, and /dev/video99 is a live source"},
	{"stream /dev/video99 --model find --realtime=false --addr HTTP", 1, "--realtime: is for files"},
	{"stream picture.png --model find --fps 3 --addr HTTP", 1, "--fps: has no effect on a picture"},
	{"stream picture.png --model find --policy latest --addr HTTP", 1, "--policy: has no effect on a picture"},
	{"stream picture.png --model find --overlay x.mp4 --addr HTTP", 1, "--overlay: x.mp4 does not end in .png or .jpg"},
	{"stream x --model find --fps -1", 2, "--fps: -1 is not more than 0 and at most 1000"},
	{"stream x --model find --fps NaN", 2, "--fps: NaN is not more than 0"},
	{"stream x --model find --width 0", 2, "--width: 0 is not allowed"},
	{"stream x --model find --width 1", 2, "--width: 1 is not between 16 and 16384"},
	{"stream x --model find --height -5", 2, "--height: -5 is not between"},
	{"stream x --model find --policy sometimes", 2, `--policy: "sometimes" is unknown: want latest or every`},
	{"stream x --model find --max-age-ms -1", 2, "--max-age-ms: -1 is negative"},
	{"stream x --model find --duration 0s", 2, "--duration: 0 is not allowed"},
	{"stream x --model find --overlay x.txt", 2, "--overlay: x.txt does not end in .mp4, .mkv"},
	{"stream x --model find --picture x.mp4", 2, "--picture: x.mp4 does not end in .png or .jpg"},
	{"record x --model find", 2, "--out is missing"},
	{"record x --out x.mill", 2, "--model is missing"},
	{"record x --model find --out text.jpg --addr HTTP", 1,
		"--out: text.jpg exists: remove it, or choose another name"},
	{"record x --model find --out none/x.mill --addr HTTP", 1, "--out: open none/x.mill: no such file"},
	{"replay", 2, "replay takes FILE.mill: 0 given"},
	{"replay none.mill --model find", 1, "open none.mill: no such file"},
	{"replay text.jpg --model find", 1, "text.jpg: is not a recording"},
	{"replay folder --model find", 1, "folder: is not a regular file"},
	{"replay x.mill", 2, "--model is missing"},
	{"replay x.mill --model find --window 0", 2, "--window: 0 is not between 1 and 65536"},
	{"replay x.mill --model find --window 5 --policy latest", 2, "--window: has no effect with --policy latest"},
	{"compare x", 2, "compare takes A.mill B.mill: 1 given"},
	{"compare none.mill none.mill", 1, "open none.mill: no such file"},
	{"compare x x --iou 0", 2, "--iou: 0 is not above 0 and at most 1"},
	{"compare x x --tolerance -1", 2, "--tolerance: -1 is not 0 or more"},
	{"compare x x --fail-under x", 2, `--fail-under: "x" is not a number`},
	{"demo x", 2, "demo takes no arguments"},
	{"demo --http off", 2, "--http: is off, and the demo needs it"},
	{"demo --out text.jpg", 1, "--out: mkdir text.jpg: not a directory"},

	{"streams --addr NOBODY", 1, "start a server with millrace serve"},
	{"streams lst", 2, "did you mean list?"},
	{"streams show nosuch --addr HTTP", 1, `no stream has the name "nosuch": millrace streams lists them`},
	{"streams show dor --addr HTTP", 1, `no stream has the name "dor" (did you mean door?); the streams are door`},
	{"streams set dor max_fps=2 --addr HTTP", 1,
		`no stream has the name "dor" (did you mean door?); the streams are door`},
	{"streams remove doro --addr HTTP", 1, `no stream has the name "doro" (did you mean door?); the streams are door`},
	{"streams pause dor --addr HTTP", 1, `no stream has the name "dor" (did you mean door?); the streams are door`},
	{"streams reset dor --addr HTTP", 1, `no stream has the name "dor" (did you mean door?); the streams are door`},
	{"streams add a", 2, "streams add takes NAME SOURCE --model MODEL: 1 given"},
	{"streams add a http://203.0.113.1/x", 2, "--model is missing"},
	{"streams add a clip.mp4 --model find --addr HTTP", 1,
		"SOURCE: file: sources come from the server's configuration only"},
	{"streams add a ftp://x/x --model find --addr HTTP", 1, `SOURCE: "ftp" is not a known kind of source`},
	{"streams add a/b http://203.0.113.1/x --model find --addr HTTP", 1, `NAME: "a/b" is not a name: want `},
	{"streams add door http://1.1.1.1/x --model find --addr HTTP", 1,
		`NAME: a stream has the name "door" already: remove it first`},
	{"streams add a http://203.0.113.1/x --model find --policy never", 2,
		`--policy: "never" is unknown: want latest or every`},
	{"streams add a http://203.0.113.1/x --model find --window 0", 2, "--window: 0 is not allowed"},
	{"streams add a http://203.0.113.1/x --model find --fps x --width 3", 2,
		"\n--width: 3 is not between 16 and 16384"},
	{"streams add a http://1.1.1.1/x --model find --file x --addr HTTP", 1, "--file: "},
	{"streams add a http://203.0.113.1/x --model find --rtsp-transport tcp --addr HTTP", 1,
		"--rtsp-transport: is for rtsp and rtsps sources"},
	{"streams add a rtsp://203.0.113.1/x --model find --loop --addr HTTP", 1,
		"--loop: is for videos and folders with an end"},
	{"streams add a http://203.0.113.1/x --model find --webhook x --addr HTTP", 1, "--webhook: is "},
	{"streams add a http://203.0.113.1/x --model find --webhook-secret x --addr HTTP", 1,
		"--webhook-secret: is set without "},
	{"streams set door", 2, "streams set takes NAME KEY=VALUE...: 1 given"},
	{"streams set door x", 2, `"x" is not KEY=VALUE`},
	{"streams set door model=x --addr HTTP", 1, "model: \"x\" is not loaded"},
	{"streams set door file=x --addr HTTP", 1, "file: "},
	{"streams set door windw=1", 2, "windw: is "},
	{"streams set door window=1 window=2", 2, "window: is given twice"},
	{"streams set door window=x max-age-ms=-1", 2, "\nmax_age_ms: -1 is negative"},
	{"streams set door paused=maybe", 2, `paused: "maybe" is not true or false`},
	{"streams set nosuch window=2 --addr HTTP", 1, `no stream has the name "nosuch"`},
	{"streams pause", 2, "streams pause takes NAME...: 0 given"},
	{"streams pause a b --addr HTTP", 1, "\nno stream has the name \"b\""},
	{"streams pause a b --addr NOBODY", 1, "start a server with millrace serve"},

	{"bench", 2, "--model is missing"},
	{"bench --model nosuch --addr HTTP", 1, `model: "nosuch" is not loaded`},
	{"bench --model nosuch --addr HTTP --protocol v1", 1, `model: "nosuch" is not loaded`},
	{"bench --model nosuch --addr HTTP --protocol rest", 1, `model: "nosuch" is not loaded`},
	{"bench --model sam --addr HTTP", 1, `model: "sam" is not loaded (did you mean same?)`},
	{"bench --model same --addr NOBODY", 1, "start a server with millrace serve"},
	{"bench --model same --addr NOBODY --protocol rest", 1, "start a server with millrace serve"},
	{"bench --model same --addr TLS", 1, "give --addr https://HOST:PORT"},
	{"bench --model same --protocol carrier", 2, `--protocol: "carrier" is not one: want ws, v1 or rest`},
	{"bench --model same --streams 0", 2, "--streams: 0 is not allowed"},
	{"bench --model same --streams -1", 2, "--streams: -1 is not between 1 and 20000"},
	{"bench --model same --window 5 --rate 3", 2, "--window: is for a closed loop"},
	{"bench --model same --poisson", 2, "--poisson: is for an open loop: give --rate"},
	{"bench --model same --seed 3 --rate 3", 2, "--seed: has no effect without --poisson"},
	{"bench --model same --burst 3", 2, "--burst: is for an open loop"},
	{"bench --model same --size 5 --file text.jpg", 2, "--size: has no effect on frames of --file and --dir"},
	{"bench --model same --file text.jpg --dir folder", 2, "--dir: give either --file or --dir"},
	{"bench --model same --file none.jpg --addr HTTP", 1, "--file: open none.jpg: no such file"},
	{"bench --model same --dir folder --addr HTTP", 1, "--dir: folder has no files, or only empty ones"},
	{"bench --model same --tensor", 2, "--tensor: is for --protocol rest"},
	{"bench --model same --option policy", 2, `--option: "policy" is not key=value`},
	{"bench --model same --option policy=never --addr HTTP", 1, `policy: "never" is unknown: want latest or every`},
	{"bench --model same --option nosuch=1 --addr HTTP --protocol v1", 1, "--option nosuch=1: is not an option"},
	{"bench --model find --frames 2 --protocol rest --addr HTTP", 1,
		"no frame was answered: 2 (2 invalid_argument) failed"},
	{"bench --model same --header x", 2, `--header: "x" is not key=value`},
	{"bench --model same --header 'a b=c'", 2, "--header: a name has other characters"},
	{"bench --model same --csv none/x.csv --addr HTTP", 1, "--csv: open none/x.csv: no such file"},
	{"bench --model same --warmup 5s --duration 1s", 2, "--duration: 1s is not longer than --ramp-up and --warmup"},
}

// twice returns a name that a message begins with two times: "http: http: ".
func twice(text string) string {
	for line := range strings.Lines(text) {
		parts := strings.Split(line, ": ")
		for i := 1; i < len(parts)-1; i++ {
			if strings.Trim(parts[i-1], "-") == strings.Trim(parts[i], "-") {
				return parts[i-1] + ": " + parts[i]
			}
		}
	}
	return ""
}

// TestFailures calls the program in wrong ways. Each time the program reports the mistake in terms of the command,
// and ends with the exit status for this kind of mistake.
func TestFailures(t *testing.T) {
	addr := serverOfFailures(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"key.yaml": "htp: 127.0.0.1:1\n", "form.yaml": "models:\n  - name: a\n   source: x\n",
		"text.jpg": "not a picture\n", "empty.jpg": "",
		"text.json": "{bad", "ok.json": `{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"type.json": `{"inputs":[{"name":"x","datatype":"FP33","shape":[1],"data":[1]}]}`,
		"output.json": `{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],` +
			`"outputs":[{"name":"nosuch"}]}`,
		"picture.png": "\x89PNG\r\n\x1a\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // hides failed handshakes
	secure.StartTLS()
	defer secure.Close()
	words := strings.NewReplacer("HTTP", addr, "TLS", secure.Listener.Addr().String(), "NOBODY", "127.0.0.1:1")
	for _, f := range failures {
		var args []string
		for _, arg := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(f.args, -1) {
			args = append(args, words.Replace(strings.Trim(arg, "'")))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var stderr bytes.Buffer
		code := run(ctx, args, &stderr)
		cancel()
		text := stderr.String()
		if code != f.code || !strings.Contains(text, f.want) ||
			strings.Contains(text, "Try: millrace") != (code == exitUsage) {
			t.Errorf("%s: exit status %d, want %d and %q\n%s", f.args, code, f.code, f.want, text)
		}
		for _, route := range []string{"/v2/", "parameters.", "open.policy", "GET ", "POST ", "DELETE "} {
			if strings.Contains(text, route) {
				t.Errorf("%s: names the protocol's %q\n%s", f.args, route, text)
			}
		}
		if found := twice(text); found != "" {
			t.Errorf("%s: says %q twice\n%s", f.args, found, text)
		}
	}
}

// serverOfFailures runs a server in this process, and returns the server's address.
func serverOfFailures(t *testing.T) string {
	t.Helper()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"}}
	if err := cfg.AddModels("same=identity", "find=motion", "soft=identity,batching.kind=soft,batching.max_delay=50ms",
		"bare=../../examples/spotter/spotter.onnx", "sound=../../examples/audio/keys.onnx"); err != nil {
		t.Fatal(err)
	}
	cfg.Streams = []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "find"}}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(30 * time.Second):
		t.Fatal("the server is not ready")
	}
	return s.Addr("http")
}
