package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"millrace/client"
	"millrace/internal/openapi"
)

// exampleRoute is a route of a program that takes JSON.
type exampleRoute struct {
	URL  string
	JSON string // a body valid under the route's schema
	Raw  bool   // the answer is bytes
}

// programRoutes returns a program's routes with JSON, and the schemas of the inputs of the route infer. A model that
// is no program has no routes.
func programRoutes(ctx context.Context, cl *client.Client,
	model string) (routes []exampleRoute, document, inputs map[string]any) {
	text, err := cl.ProgramOpenAPI(ctx, model)
	if err != nil || json.Unmarshal(text, &document) != nil {
		return nil, nil, nil
	}
	paths, _ := document["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		schema := at(paths, path, "post", "requestBody", "content", "application/json", "schema")
		if path == "/infer" {
			inputs, _ = schema["properties"].(map[string]any)
		}
		if schema == nil || takesFile(schema) {
			continue
		}
		body, err := json.Marshal(openapi.ExampleValue(document, schema))
		if err != nil {
			continue
		}
		route := exampleRoute{URL: cl.Addr() + "/apps/" + model + path, JSON: string(body)}
		route.Raw = at(paths, path, "post", "responses", "200", "content", "application/octet-stream") != nil
		if path == "/infer" {
			routes = slices.Insert(routes, 0, route)
			continue
		}
		routes = append(routes, route)
	}
	return routes, document, inputs
}

// takesFile reports whether an object has a file, such as a picture, better sent as the body.
func takesFile(schema map[string]any) bool {
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		if format := at(properties, name)["format"]; format == "byte" || format == "binary" {
			return true
		}
	}
	return false
}

// at returns the object at the end of a path of keys, or nil.
func at(of map[string]any, path ...string) map[string]any {
	for _, key := range path {
		of, _ = of[key].(map[string]any)
	}
	return of
}

// elementOf returns a sample element for a program's input, as JSON. For a BYTES input, a sample that is no string is
// encoded twice: the element is a text with the sample's JSON.
func elementOf(document, schema map[string]any, datatype string) string {
	value := openapi.ExampleValue(document, schema)
	text, err := json.Marshal(value)
	if err != nil {
		return "0"
	}
	if _, isText := value.(string); datatype == "BYTES" && !isText {
		text, err = json.Marshal(string(text))
	}
	if err != nil {
		return "0"
	}
	return string(text)
}

const routeCalls = `
{{define "routes curl"}}{{range .Routes}}# The route of the program, in JSON.
curl -sS{{if $.Decoupled}}N{{end}} --fail-with-body{{if $.Key}} -H "Authorization: Bearer $MILLRACE_TOKEN"{{end}} {{$.Shell .URL}} -H 'Content-Type: application/json' -d {{$.Shell .JSON}}{{if .Raw}} -o output.bin || { cat output.bin; exit 1; }{{end}}
echo

{{end}}{{end -}}
{{- define "routes python"}}import json
{{- if .Key}}
import os
{{- end}}
from urllib.error import HTTPError
from urllib.request import Request, urlopen

headers = {"Content-Type": "application/json"}
{{- if .Key}}
headers["Authorization"] = "Bearer " + os.environ["MILLRACE_TOKEN"]
{{- end}}
{{range .Routes}}
# The route of the program, in JSON.
body = json.loads({{$.PythonText .JSON}})
try:
    with urlopen(Request("{{.URL}}", json.dumps(body).encode(), headers)) as reply:
{{- if .Raw}}
        with open("output.bin", "wb") as file:
            file.write(reply.read())
{{- else}}
        print(reply.read().decode())
{{- end}}
except HTTPError as error:
    raise SystemExit(f"{error}: {error.read().decode()}")
{{end}}{{end -}}
{{- define "routes go"}}package main

import (
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
{{- range .Routes}}
	// The route of the program, in JSON.
	call("{{.URL}}", {{printf "%q" .JSON}})
{{- end}}
}

func call(url, body string) {
	request, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
{{- if .Key}}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("MILLRACE_TOKEN"))
{{- end}}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s %v", reply.Status, text, err)
	}
	fmt.Println(string(text))
}
{{end -}}
{{- define "routes js"}}const headers = {'Content-Type': 'application/json'};
{{- if .Key}}
headers.Authorization = 'Bearer ' + process.env.MILLRACE_TOKEN;
{{- end}}
{{range .Routes}}
{ // The route of the program, in JSON.
  const reply = await fetch('{{.URL}}', {method: 'POST', headers, body: JSON.stringify({{.JSON}})});
  if (!reply.ok) throw new Error(await reply.text());
  console.log(await reply.text());
}
{{end}}{{end}}`

// PythonText returns a text as a literal of Python.
func (*exampleCall) PythonText(text string) string {
	literal, err := json.Marshal(text) // escapes of JSON are escapes of Python
	if err != nil {
		return `""`
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(literal))
}
