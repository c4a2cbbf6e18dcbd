package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/internal/openapi"
	"millrace/stream"
)

const callExamples = `  millrace examples motion
  millrace examples motion --format python > call.py
  millrace examples spotter --format go --addr 192.0.2.7:8000`

// exampleFormats are the languages of the calls.
var exampleFormats = []string{"curl", "python", "go", "js"}

// maxPrinted is the maximum number of numbers written out in a call.
const maxPrinted = 64

func examplesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "examples MODEL",
		Short: "Print calls of a loaded model, in several languages",
		Long: `Print calls of a loaded model, ready to run. The calls send tensors of zeros, in JSON and as
bytes, and picture.jpg of the current folder when the model takes pictures. Inputs with a default are left
out. A class in Python with a picture and further inputs without a default gets the picture and all inputs in a
single request. Outputs without a form in JSON, as a picture in BYTES, are requested as binary data, and the calls
save the output to OUTPUT.bin. For a program with JSON, as a class in Python, the calls go to the program's routes
at /apps/MODEL/, with bodies made from the type hints. A model without declared inputs gets a tensor x as an
example. The calls of a model with several answers read events. Where the server wants a key, the calls read the key
from the variable MILLRACE_TOKEN. Calls in Python need the standard library only, calls in Go the package client of
this module (a comment has the go.mod) or net/http, calls in JavaScript Node or a browser.`,
		Example:           callExamples,
		Args:              wrongUsage(cobra.ExactArgs(1)),
		ValidArgsFunction: completeArgs(completeModels, completeNothing),
	}
	host := remoteFlags(c)
	format := c.Flags().String("format", "curl", "curl, python, go or js")
	version := c.Flags().String("version", "", "version of the model (any)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(exampleFormats, *format) {
			return usagef("--format: %q is unknown: want %s", *format, "curl, python, go or js")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		meta, err := cl.Metadata(c.Context(), args[0], *version)
		if err != nil {
			return withVersionFlag(suggestModel(c.Context(), cl, args[0], err))
		}
		text, err := cl.OpenAPI(c.Context())
		if err != nil {
			return err
		}
		routes, document, inputs := programRoutes(c.Context(), cl, args[0])
		takes, err := takesOf(c.Context(), cl, meta, *version)
		if err != nil {
			return err
		}
		call, err := newExampleCall(cl.Addr(), meta, takes, *version, text)
		if err != nil {
			return err
		}
		key, err := host.apiKey()
		if err != nil {
			return err
		}
		call.Key, call.Routes = key != "", routes
		call.findPicture(takes.Picture, inputs)
		call.findSaved(meta.Outputs, document)
		kind := *format
		if len(routes) > 0 {
			kind += " program"
			call.setTexts(document, inputs)
		} else if call.Decoupled {
			kind += " events"
		}
		return exampleTemplates[kind].Execute(c.OutOrStdout(), call)
	}
	return c
}

// exampleCall is the data of the templates for a model.
type exampleCall struct {
	Addr, Model, Version string
	URL                  string
	Pictures             bool // the model takes a picture as the whole body
	Mixed                bool // the model takes a picture and other inputs
	Inputs               []exampleInput
	InJSON               bool   // the tensors have a notation in JSON
	JSON                 string // the request; "" when it is too long to be printed
	Header               string // the JSON in front of binary tensors
	Bytes                int    // of all tensors
	Decoupled            bool   // the model may answer more than once
	Binary               bool   // an output has no notation in JSON, or may have none
	// name of the model's last output, if that output is one element of BYTES: saved to a file; "" = none
	Save    string
	Left    string // the inputs left out in the calls
	Unknown bool   // the model declares no inputs
	Key     bool   // the calls send a key
	Routes  []exampleRoute
}

type exampleInput struct {
	Name, Datatype string
	Shape          []int
	Elements       int
	Bytes          int
	Zero           string // an element, in JSON
	Picture        bool   // a request may have a picture in place of the tensor
}

// newExampleCall describes the calls of a model; text is the server's OpenAPI document.
func newExampleCall(addr string, m client.Metadata, takes openapi.InputRules, version string,
	text []byte) (*exampleCall, error) {
	c := &exampleCall{Addr: addr, Model: m.Name, Version: version, URL: addr + "/v2/models/" + m.Name}
	if version != "" {
		c.URL += "/versions/" + version
	}
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]json.RawMessage `json:"content"`
				} `json:"requestBody"`
			} `json:"post"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the server's OpenAPI document cannot be read: %w", err)
	}
	_, c.Pictures = document.Paths["/v2/models/"+m.Name+"/infer"].Post.RequestBody.Content["image/jpeg"]
	_, c.Decoupled = document.Paths["/v2/models/"+m.Name+"/infer_stream"]
	c.Binary = slices.ContainsFunc(m.Outputs, func(t client.Tensor) bool {
		return t.Datatype == "FP16" || t.Datatype == "BF16"
	})
	switch {
	case c.Decoupled && c.Binary:
		return nil, fmt.Errorf("model %s may answer more than once, with half floats, for which REST has no call: "+
			"use ModelStreamInfer of gRPC (docs/grpc.md)", m.Name)
	case c.Decoupled:
		c.URL += "/infer_stream"
	default:
		c.URL += "/infer"
	}
	// without declared inputs, the model takes any input, and answers a picture with its bytes
	if takes.Picture == nil || !takes.Picture.Alone {
		c.Pictures = false
	}
	inputs := openapi.RequiredInputs(m.Inputs, takes.Optional, func(t client.Tensor) string { return t.Name })
	for _, t := range m.Inputs {
		if !slices.ContainsFunc(inputs, func(sent client.Tensor) bool { return sent.Name == t.Name }) {
			c.Left = strings.TrimPrefix(c.Left+", "+t.Name, ", ")
		}
	}
	if len(inputs) == 0 {
		c.Unknown, inputs = true, []client.Tensor{{Name: "x", Datatype: "FP32", Shape: []int{2}}}
	}
	total := 0
	c.InJSON = true
	for _, t := range inputs {
		in := exampleInput{Name: t.Name, Datatype: t.Datatype, Shape: openapi.ExampleShape(t.Shape), Elements: 1,
			Zero: "0"}
		for _, d := range in.Shape {
			in.Elements *= d
		}
		in.Bytes = in.Elements * cmp.Or(stream.Datatype(t.Datatype).Size(), 4) // 4: the length of an empty text
		switch t.Datatype {
		case "BOOL":
			in.Zero = "false"
		case "BYTES":
			in.Zero = `"text"`
		case "FP16", "BF16":
			c.InJSON = false
		}
		total += in.Elements
		c.Bytes += in.Bytes
		c.Inputs = append(c.Inputs, in)
	}
	var inHeader []string
	for _, in := range c.Inputs {
		inHeader = append(inHeader, in.head()+fmt.Sprintf(`"parameters":{"binary_data_size":%d}}`, in.Bytes))
	}
	if c.InJSON && total <= maxPrinted {
		c.JSON = c.requestJSON()
	}
	c.Header = `{"inputs":[` + strings.Join(inHeader, ",") + `]}`
	return c, nil
}

// InferURL returns the address of the call. The query asks for binary outputs if JSON cannot represent an output.
func (c *exampleCall) InferURL() string {
	if c.Binary {
		return c.URL + "?outputs=binary"
	}
	return c.URL
}

// requestJSON returns the request with tensors in JSON.
func (c *exampleCall) requestJSON() string {
	var inputs []string
	for _, in := range c.Inputs {
		inputs = append(inputs, in.head()+`"data":[`+
			strings.TrimSuffix(strings.Repeat(in.Zero+",", min(in.Elements, maxPrinted+1)), ",")+`]}`)
	}
	return `{"inputs":[` + strings.Join(inputs, ",") + `]}`
}

// setTexts sets values of inputs that are valid under the schemas of the program's route.
func (c *exampleCall) setTexts(document, schemas map[string]any) {
	for i := range c.Inputs {
		if schema, _ := schemas[c.Inputs[i].Name].(map[string]any); schema != nil {
			c.Inputs[i].Zero = elementOf(document, schema, c.Inputs[i].Datatype)
		}
	}
	if c.JSON != "" {
		c.JSON = c.requestJSON()
	}
}

// head returns the beginning of an input in JSON.
func (in exampleInput) head() string {
	return fmt.Sprintf(`{"name":%q,"datatype":%q,"shape":%s,`, in.Name, in.Datatype, in.JSONShape())
}

// JSONShape returns the shape in JSON.
func (in exampleInput) JSONShape() string {
	text, _ := json.Marshal(in.Shape) // whole numbers
	return string(text)
}

// GoShape returns the elements of the shape in Go.
func (in exampleInput) GoShape() string { return strings.Trim(in.JSONShape(), "[]") }

// PythonZero returns an element in Python.
func (in exampleInput) PythonZero() string {
	if in.Zero == "false" {
		return "False"
	}
	return in.Zero
}

// Shell quotes a text for a shell.
func (*exampleCall) Shell(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var exampleTemplates = map[string]*template.Template{}

func init() {
	for name, text := range map[string]string{
		"curl": curlCalls, "python": notes + pythonCalls, "go": notes + goCalls, "js": notes + jsCalls,
		"curl program": routeCalls + curlProgram, "python program": routeCalls + `{{template "routes python" .}}`,
		"go program": routeCalls + `{{template "routes go" .}}`, "js program": routeCalls +
			`{{template "routes js" .}}`,
		"curl events": curlEvents, "python events": pythonEvents, "go events": goEvents, "js events": jsEvents,
	} {
		exampleTemplates[name] = template.Must(template.New(name).Parse(strings.TrimLeft(text, "\n")))
	}
}

// notes list the inputs that the calls leave out.
const notes = `{{define "notes"}}{{with .Left}}# Inputs that have a default are left out: {{.}}.

{{end}}{{if .Unknown}}# The model declares no inputs: the tensor x is an example.

{{end}}{{end}}{{define "js notes"}}{{with .Left}}// Inputs that have a default are left out: {{.}}.

{{end}}{{if .Unknown}}// The model declares no inputs: the tensor x is an example.

{{end}}{{end}}`

// begin and end surround a call of curl, because a reply with binary outputs does not suit a terminal. Such a reply
// is a JSON header, with its length in an HTTP header, followed by the bytes of the outputs.
const curlEnd = notes +
	`{{define "begin"}}{{if .Binary}}length=$({{end}}{{end}}{{define "end"}}{{if .Binary}} -o reply.bin -w '%header{inference-header-content-length}') || { cat reply.bin; exit 1; }
head -c "$length" reply.bin # JSON, in front of the bytes of the outputs
{{- if .Save}}
size=$(head -c "$length" reply.bin | sed 's/.*"binary_data_size":\([0-9]*\).*/\1/')
tail -c "$((size - 4))" reply.bin > {{.SaveFile}} # the last output, without the 4 bytes of its length
{{- end}}{{end}}
echo
{{end}}`

const curlCalls = curlEnd + `{{template "notes" .}}{{if .JSON}}# Tensors in JSON.
{{template "begin" .}}curl -sS --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .InferURL}} -H 'Content-Type: application/json' -d {{.Shell .JSON}}{{template "end" .}}
{{end}}# Tensors as bytes behind the JSON, little-endian. The reply has binary tensors with ?outputs=binary.
{{template "begin" .}}{ printf %s {{.Shell .Header}}; head -c {{.Bytes}} /dev/zero; } |
  curl -sS --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .InferURL}} -H 'Content-Type: application/octet-stream' -H 'Inference-Header-Content-Length: {{len .Header}}' --data-binary @-{{template "end" .}}
{{- if .Pictures}}
# A picture, of any size: JPEG, PNG or WebP.
{{template "begin" .}}curl -sS --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .InferURL}} -H 'Content-Type: image/jpeg' --data-binary @picture.jpg{{template "end" .}}
{{- end}}
{{- if .Mixed}}
# A picture, of any size, in base64, and the other inputs as tensors: JPEG, PNG or WebP.
{{template "begin" .}}{ printf %s {{.Shell .BeforePicture}}; base64 < picture.jpg | tr -d '\n'; printf %s {{.Shell .AfterPicture}}; } |
  curl -sS --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .InferURL}} -H 'Content-Type: application/json' --data-binary @-{{template "end" .}}
{{- end}}`

// Raw reports whether the route infer answers bytes.
func (c *exampleCall) Raw() bool { return len(c.Routes) > 0 && c.Routes[0].Raw }

const curlProgram = `{{template "routes curl" .}}{{if and .JSON (not .Decoupled) (not .Unknown) (not .Raw)}}# Tensors in JSON: an input that is not text has its value in JSON.
curl -sS --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .URL}} -H 'Content-Type: application/json' -d {{.Shell .JSON}}
echo
{{end}}`

const curlEvents = `
# Tensors as bytes behind the JSON, little-endian. Each answer is an event with a reply in JSON.
{ printf %s {{.Shell .Header}}; head -c {{.Bytes}} /dev/zero; } |
  curl -sSN --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .URL}} -H 'Content-Type: application/octet-stream' -H 'Inference-Header-Content-Length: {{len .Header}}' --data-binary @-
{{if .JSON}}
# Tensors in JSON.
curl -sSN --fail-with-body{{if .Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{.Shell .URL}} -H 'Content-Type: application/json' -d {{.Shell .JSON}}
{{end}}`

const pythonCalls = `{{template "notes" .}}{{if .Mixed}}import base64
{{end}}import json
{{- if .Key}}
import os
{{- end}}
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL = "{{.InferURL}}"


def infer(body, headers):
{{- if .Key}}
    headers = {**headers, "Authorization": "Bearer " + os.environ["MILLRACE_TOKEN"]}
{{- end}}
    try:
        with urlopen(Request(URL, body, headers)) as reply:
{{- if .Binary}}
            data, size = reply.read(), int(reply.headers["Inference-Header-Content-Length"])
    except HTTPError as error:
        raise SystemExit(f"{error}: {error.read().decode()}")
    return json.loads(data[:size]), data[size:]
{{- else}}
            return json.load(reply)
    except HTTPError as error:
        raise SystemExit(f"{error}: {error.read().decode()}")
{{- end}}


{{if .Binary}}def show(answer):
    reply, data = answer
    for output in reply["outputs"]:
        size = output["parameters"]["binary_data_size"]
        print(output["name"], output["datatype"], output["shape"], data[:size][:8])
{{- if .Save}}
        if output["name"] == {{printf "%q" .Save}}:  # an element of BYTES has its length in front, in 4 bytes
            with open("{{.SaveFile}}", "wb") as file:
                file.write(data[4:size])
{{- end}}
        data = data[size:]
{{else}}def show(reply):
    for output in reply["outputs"]:
        print(output["name"], output["datatype"], output["shape"], output.get("data", [])[:8])
{{end}}

{{if .InJSON}}# Tensors in JSON.
inputs = [
{{- range .Inputs}}
    {"name": {{printf "%q" .Name}}, "datatype": {{printf "%q" .Datatype}}, "shape": {{.JSONShape}}, "data": [{{.PythonZero}}] * {{.Elements}}},
{{- end}}
]
show(infer(json.dumps({"inputs": inputs}).encode(), {"Content-Type": "application/json"}))

{{end}}# Tensors as bytes behind the JSON, little-endian; of a numpy array: array.tobytes().
tensors = [
{{- range .Inputs}}
    ({"name": {{printf "%q" .Name}}, "datatype": {{printf "%q" .Datatype}}, "shape": {{.JSONShape}}}, bytes({{.Bytes}})),
{{- end}}
]
header = json.dumps({"inputs": [{**meta, "parameters": {"binary_data_size": len(data)}} for meta, data in tensors]}).encode()
show(infer(header + b"".join(data for _, data in tensors), {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}))
{{if .Pictures}}
# A picture, of any size: JPEG, PNG or WebP.
with open("picture.jpg", "rb") as picture:
    show(infer(picture.read(), {"Content-Type": "image/jpeg"}))
{{end}}
{{- if .Mixed}}
# A picture, of any size, in base64, and the other inputs as tensors: JPEG, PNG or WebP.
with open("picture.jpg", "rb") as file:
    picture = base64.b64encode(file.read()).decode()
inputs = [
{{- range .Inputs}}
{{- if .Picture}}
    {"name": {{printf "%q" .Name}}, "datatype": "BYTES", "shape": [1], "data": [picture]},
{{- else}}
    {"name": {{printf "%q" .Name}}, "datatype": {{printf "%q" .Datatype}}, "shape": {{.JSONShape}}, "data": [{{.PythonZero}}] * {{.Elements}}},
{{- end}}
{{- end}}
]
show(infer(json.dumps({"inputs": inputs}).encode(), {"Content-Type": "application/json"}))
{{end}}`

const goCalls = `{{template "js notes" .}}// In a folder of its own, beside that of the module millrace, with this go.mod (docs/embed.md):
//
//	module mine
//
//	go 1.26.0
//
//	require millrace v0.0.0
//
//	replace millrace => ../millrace
//
// Copy the sums of the module, and run the calls:
//
//	cp ../millrace/go.sum . && go run -mod=mod .

package main

import (
	"context"
{{- if .Mixed}}
	"encoding/binary"
{{- end}}
	"fmt"
	"log"
{{- if or .Pictures .Mixed .Key .Save}}
	"os"
{{- end}}

	"millrace/client"
	"millrace/stream"
)

func main() {
	c, err := {{if .Key}}client.NewWith("{{.Addr}}", client.Options{Token: os.Getenv("MILLRACE_TOKEN")}){{else}}client.New("{{.Addr}}"){{end}}
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	// Tensors: the bytes of their elements, little-endian.
	infer(c, client.Request{ {{- if .Version}}Version: "{{.Version}}", {{end}}Inputs: []stream.Tensor{
{{- range .Inputs}}
		{Name: {{printf "%q" .Name}}, Datatype: {{printf "%q" .Datatype}}, Shape: []int{ {{- .GoShape -}} }, Data: make([]byte, {{.Bytes}})},
{{- end}}
	}})
{{- if .Pictures}}

	// A picture, of any size: JPEG, PNG or WebP.
	picture, err := os.ReadFile("picture.jpg")
	if err != nil {
		log.Fatal(err)
	}
	infer(c, client.Request{ {{- if .Version}}Version: "{{.Version}}", {{end}}Picture: picture})
{{- end}}
{{- if .Mixed}}

	// A picture, of any size, and the other inputs as tensors: JPEG, PNG or WebP. An element of BYTES has its length in
	// front.
	picture, err := os.ReadFile("picture.jpg")
	if err != nil {
		log.Fatal(err)
	}
	element := append(binary.LittleEndian.AppendUint32(nil, uint32(len(picture))), picture...)
	infer(c, client.Request{ {{- if .Version}}Version: "{{.Version}}", {{end}}Inputs: []stream.Tensor{
{{- range .Inputs}}
{{- if .Picture}}
		{Name: {{printf "%q" .Name}}, Datatype: "BYTES", Shape: []int{1}, Data: element},
{{- else}}
		{Name: {{printf "%q" .Name}}, Datatype: {{printf "%q" .Datatype}}, Shape: []int{ {{- .GoShape -}} }, Data: make([]byte, {{.Bytes}})},
{{- end}}
{{- end}}
	}})
{{- end}}
}

func infer(c *client.Client, request client.Request) {
	answer, err := c.Infer(context.Background(), "{{.Model}}", request)
	if err != nil {
		log.Fatal(err)
	}
	for _, output := range answer.Outputs {
		fmt.Println(output.Name, output.Datatype, output.Shape, len(output.Data), "bytes")
{{- if .Save}}
		if output.Name == {{printf "%q" .Save}} { // an element of BYTES has its length in front, in 4 bytes
			if err := os.WriteFile("{{.SaveFile}}", output.Data[4:], 0o666); err != nil {
				log.Fatal(err)
			}
		}
{{- end}}
	}
}
`

const jsCalls = `{{template "js notes" .}}// With fetch. The package @millrace/client (web/client/README.md) has these calls and streams of frames.
const url = '{{.InferURL}}';

async function infer(body, headers) {
{{- if .Key}}
  headers = {...headers, Authorization: 'Bearer ' + process.env.MILLRACE_TOKEN};
{{- end}}
  const reply = await fetch(url, {method: 'POST', body, headers});
  if (!reply.ok) throw new Error(await reply.text());
{{- if .Binary}}
  const data = await reply.arrayBuffer(), size = Number(reply.headers.get('Inference-Header-Content-Length'));
  return [JSON.parse(new TextDecoder().decode(data.slice(0, size))), data.slice(size)];
{{- else}}
  return reply.json();
{{- end}}
}

{{if .Binary}}{{if .Save}}async {{end}}function show([{outputs}, data]) {
  for (const {name, datatype, shape, parameters: {binary_data_size: size}} of outputs) {
    console.log(name, datatype, shape, data.slice(0, Math.min(size, 8)));
{{- if .Save}}
    if (name === {{printf "%q" .Save}}) { // an element of BYTES has its length in front, in 4 bytes. In Node:
      const {writeFile} = await import('node:fs/promises');
      await writeFile('{{.SaveFile}}', new Uint8Array(data.slice(4, size)));
    }
{{- end}}
    data = data.slice(size);
  }
}
{{else}}function show({outputs}) {
  for (const {name, datatype, shape, data} of outputs) console.log(name, datatype, shape, data?.slice(0, 8));
}
{{end}}
{{if .InJSON}}// Tensors in JSON.
const inputs = [
{{- range .Inputs}}
  {name: {{printf "%q" .Name}}, datatype: {{printf "%q" .Datatype}}, shape: {{.JSONShape}}, data: Array({{.Elements}}).fill({{.Zero}})},
{{- end}}
];
{{if .Save}}await {{end}}show(await infer(JSON.stringify({inputs}), {'Content-Type': 'application/json'}));

{{end}}// Tensors as bytes behind the JSON, little-endian.
const header = new TextEncoder().encode({{printf "%q" .Header}});
{{if .Save}}await {{end}}show(await infer(new Blob([header, new Uint8Array({{.Bytes}})]), {'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(header.length)}));
{{if .Pictures}}
// A picture, of any size: JPEG, PNG or WebP. In Node:
const {readFile} = await import('node:fs/promises');
const picture = new Blob([await readFile('picture.jpg')], {type: 'image/jpeg'});
{{if .Save}}await {{end}}show(await infer(picture, {'Content-Type': 'image/jpeg'}));
{{end}}
{{- if .Mixed}}
// A picture, of any size, in base64, and the other inputs as tensors: JPEG, PNG or WebP. In Node:
const {readFile} = await import('node:fs/promises');
const picture = await readFile('picture.jpg', 'base64');
const mixed = [
{{- range .Inputs}}
{{- if .Picture}}
  {name: {{printf "%q" .Name}}, datatype: 'BYTES', shape: [1], data: [picture]},
{{- else}}
  {name: {{printf "%q" .Name}}, datatype: {{printf "%q" .Datatype}}, shape: {{.JSONShape}}, data: Array({{.Elements}}).fill({{.Zero}})},
{{- end}}
{{- end}}
];
{{if .Save}}await {{end}}show(await infer(JSON.stringify({inputs: mixed}), {'Content-Type': 'application/json'}));
{{end}}`

const pythonEvents = `
import json
{{- if .Key}}
import os
{{- end}}
from urllib.error import HTTPError
from urllib.request import Request, urlopen

# Tensors as bytes behind the JSON, little-endian; of a numpy array: array.tobytes().
tensors = [
{{- range .Inputs}}
    ({"name": {{printf "%q" .Name}}, "datatype": {{printf "%q" .Datatype}}, "shape": {{.JSONShape}}}, bytes({{.Bytes}})),
{{- end}}
]
header = json.dumps({"inputs": [{**meta, "parameters": {"binary_data_size": len(data)}} for meta, data in tensors]}).encode()
headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}
{{- if .Key}}
headers["Authorization"] = "Bearer " + os.environ["MILLRACE_TOKEN"]
{{- end}}

# Each answer is an event with a reply in JSON; the last one is called end, or error.
try:
    events = urlopen(Request("{{.URL}}", header + b"".join(data for _, data in tensors), headers))
except HTTPError as error:
    raise SystemExit(f"{error}: {error.read().decode()}")
with events:
    kind = ""
    for line in events:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data" and kind == "error":
            raise SystemExit(value)
        elif name == "data" and kind == "":
            for output in json.loads(value)["outputs"]:
                print(output["name"], output["datatype"], output["shape"], output["data"][:8])
`

const goEvents = `
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
{{- if .Key}}
	"os"
{{- end}}
	"strings"
)

func main() {
	// Tensors as bytes behind the JSON, little-endian.
	header := {{printf "%q" .Header}}
	body := append([]byte(header), make([]byte, {{.Bytes}})...)
	request, err := http.NewRequest("POST", "{{.URL}}", bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
{{- if .Key}}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("MILLRACE_TOKEN"))
{{- end}}
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(header)))
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(reply.Body)
		log.Fatalf("%s: %s", reply.Status, text)
	}
	// Each answer is an event with a reply in JSON; the last one is called end, or error.
	kind := ""
	lines := bufio.NewReader(reply.Body)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "event":
			kind = value
		case name == "data" && kind == "error":
			log.Fatal(value)
		case name == "data" && kind == "":
			var answer struct {
				Outputs []struct {
					Name, Datatype string
					Shape          []int
					Data           json.RawMessage
				}
			}
			if err := json.Unmarshal([]byte(value), &answer); err != nil {
				log.Fatal(err)
			}
			for _, output := range answer.Outputs {
				fmt.Println(output.Name, output.Datatype, output.Shape, string(output.Data))
			}
		}
	}
}
`

const jsEvents = `
// Tensors as bytes behind the JSON, little-endian.
const header = new TextEncoder().encode({{printf "%q" .Header}});
const body = new Blob([header, new Uint8Array({{.Bytes}})]);
const headers = {'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(header.length)};
{{- if .Key}}
headers.Authorization = 'Bearer ' + process.env.MILLRACE_TOKEN;
{{- end}}
const reply = await fetch('{{.URL}}', {method: 'POST', body, headers});
if (!reply.ok) throw new Error(await reply.text());

// Each answer is an event with a reply in JSON; the last one is called end, or error.
const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
let text = '', kind = '';
for (let part = await reader.read(); !part.done; part = await reader.read()) {
  const lines = (text + part.value).split('\n');
  text = lines.pop();
  for (const line of lines) {
    const [, name, value] = line.match(/^(event|data): (.*)$/) ?? [];
    if (name === 'event') kind = value;
    if (name === 'data' && kind === 'error') throw new Error(value);
    if (name === 'data' && kind === '') for (const {name, datatype, shape, data} of JSON.parse(value).outputs) console.log(name, datatype, shape, data.slice(0, 8));
  }
}
`
