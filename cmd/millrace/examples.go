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

// maxPrinted is the most numbers that a call writes out.
const maxPrinted = 64

func examplesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "examples MODEL",
		Short: "Print calls of a loaded model, in several languages",
		Long: `Print calls of a loaded model that can be run as they are printed: with tensors of zeros in JSON and as bytes, and with a
picture when the model takes pictures, which is picture.jpg in the current folder. Those in Python need its standard library only, those in Go the
package client of this module, and those in JavaScript Node or a browser.`,
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
		call, err := newExampleCall(cl.Addr(), meta, *version, text)
		if err != nil {
			return err
		}
		return exampleTemplates[*format].Execute(c.OutOrStdout(), call)
	}
	return c
}

// exampleCall is what the templates need of a model.
type exampleCall struct {
	Addr, Model, Version string
	URL                  string
	Pictures             bool // the model takes pictures
	Inputs               []exampleInput
	InJSON               bool   // the tensors have a notation in JSON
	JSON                 string // the request; "" when it is too long to be printed
	Header               string // the JSON in front of binary tensors
	Bytes                int    // of all tensors
}

type exampleInput struct {
	Name, Datatype string
	Shape          []int
	Elements       int
	Bytes          int
	Zero           string // an element, in JSON
}

// newExampleCall describes the calls of a model; text is the server's OpenAPI document.
func newExampleCall(addr string, m client.Metadata, version string, text []byte) (*exampleCall, error) {
	c := &exampleCall{Addr: addr, Model: m.Name, Version: version, URL: addr + "/v2/models/" + m.Name}
	if version != "" {
		c.URL += "/versions/" + version
	}
	c.URL += "/infer"
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
	inputs := m.Inputs
	if len(inputs) == 0 { // it takes any, and answers a picture with its bytes
		c.Pictures = false
		inputs = []client.Tensor{{Name: "x", Datatype: "FP32", Shape: []int{2}}}
	}
	total := 0
	c.InJSON = true
	for _, t := range inputs {
		in := exampleInput{Name: t.Name, Datatype: t.Datatype, Shape: openapi.ExampleShape(t.Shape), Elements: 1, Zero: "0"}
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
	var inJSON, inHeader []string
	for _, in := range c.Inputs {
		head := fmt.Sprintf(`{"name":%q,"datatype":%q,"shape":%s,`, in.Name, in.Datatype, in.JSONShape())
		inJSON = append(inJSON, head+`"data":[`+strings.TrimSuffix(strings.Repeat(in.Zero+",", min(in.Elements, maxPrinted+1)), ",")+`]}`)
		inHeader = append(inHeader, head+fmt.Sprintf(`"parameters":{"binary_data_size":%d}}`, in.Bytes))
	}
	if c.InJSON && total <= maxPrinted {
		c.JSON = `{"inputs":[` + strings.Join(inJSON, ",") + `]}`
	}
	c.Header = `{"inputs":[` + strings.Join(inHeader, ",") + `]}`
	return c, nil
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
	for name, text := range map[string]string{"curl": curlCalls, "python": pythonCalls, "go": goCalls, "js": jsCalls} {
		exampleTemplates[name] = template.Must(template.New(name).Parse(strings.TrimLeft(text, "\n")))
	}
}

const curlCalls = `
{{if .JSON}}# Tensors in JSON.
curl -sS --fail-with-body {{.Shell .URL}} -H 'Content-Type: application/json' -d {{.Shell .JSON}}
echo

{{end}}# Tensors as bytes behind the JSON, little-endian. The reply has binary tensors with ?outputs=binary.
{ printf %s {{.Shell .Header}}; head -c {{.Bytes}} /dev/zero; } |
  curl -sS --fail-with-body {{.Shell .URL}} -H 'Content-Type: application/octet-stream' -H 'Inference-Header-Content-Length: {{len .Header}}' --data-binary @-
echo
{{if .Pictures}}
# A picture, of any size: JPEG, PNG or WebP.
curl -sS --fail-with-body {{.Shell .URL}} -H 'Content-Type: image/jpeg' --data-binary @picture.jpg
echo
{{end}}`

const pythonCalls = `
import json
from urllib.request import Request, urlopen

URL = "{{.URL}}"


def infer(body, headers):
    with urlopen(Request(URL, body, headers)) as reply:
        return json.load(reply)


def show(reply):
    for output in reply["outputs"]:
        print(output["name"], output["datatype"], output["shape"], output.get("data", [])[:8])


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
{{end}}`

const goCalls = `
package main

import (
	"context"
	"fmt"
	"log"
{{- if .Pictures}}
	"os"
{{- end}}

	"millrace/client"
	"millrace/stream"
)

func main() {
	c, err := client.New("{{.Addr}}")
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
}

func infer(c *client.Client, request client.Request) {
	answer, err := c.Infer(context.Background(), "{{.Model}}", request)
	if err != nil {
		log.Fatal(err)
	}
	for _, output := range answer.Outputs {
		fmt.Println(output.Name, output.Datatype, output.Shape, len(output.Data), "bytes")
	}
}
`

const jsCalls = `
// With fetch.
const url = '{{.URL}}';

async function infer(body, headers) {
  const reply = await fetch(url, {method: 'POST', body, headers});
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

function show({outputs}) {
  for (const {name, datatype, shape, data} of outputs) console.log(name, datatype, shape, data?.slice(0, 8));
}

{{if .InJSON}}// Tensors in JSON.
const inputs = [
{{- range .Inputs}}
  {name: {{printf "%q" .Name}}, datatype: {{printf "%q" .Datatype}}, shape: {{.JSONShape}}, data: Array({{.Elements}}).fill({{.Zero}})},
{{- end}}
];
show(await infer(JSON.stringify({inputs}), {'Content-Type': 'application/json'}));

{{end}}// Tensors as bytes behind the JSON, little-endian.
const header = new TextEncoder().encode({{printf "%q" .Header}});
show(await infer(new Blob([header, new Uint8Array({{.Bytes}})]), {'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(header.length)}));
{{if .Pictures}}
// A picture, of any size: JPEG, PNG or WebP. In Node:
const {readFile} = await import('node:fs/promises');
const picture = new Blob([await readFile('picture.jpg')], {type: 'image/jpeg'});
show(await infer(picture, {'Content-Type': 'image/jpeg'}));
{{end}}
{{- if and .InJSON (not .Version)}}
// With the client: see web/client/README.md; a page of this server has it at /console/client/index.js.
const {REST} = await import('@millrace/client');
const server = new REST('{{.Addr}}');
show(await server.infer('{{.Model}}', inputs));
{{- if .Pictures}}
show(await server.infer('{{.Model}}', picture));
{{- end}}
{{end}}`
