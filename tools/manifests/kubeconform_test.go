package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/apps/kubernetes"
	"millrace/internal/testbuild"
)

// schemas writes a JSON schema for each kind of object, from Kubernetes' description of its API in the form of OpenAPI,
// and returns the pattern of the files' names for kubeconform. Fields that Kubernetes does not have are refused.
func schemas(t *testing.T, swagger string) (pattern string) {
	t.Helper()
	data, err := os.ReadFile(swagger)
	if err != nil {
		t.Fatal(err)
	}
	var api struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(data, &api); err != nil {
		t.Fatal(err)
	}
	// OpenAPI 2 has no words for these types.
	api.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = map[string]any{"type": []string{"string", "number"}}
	api.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = map[string]any{"type": []string{"string",
		"integer"}}
	dir := t.TempDir()
	for file, name := range map[string]string{"configmap-v1": "core.v1.ConfigMap", "service-v1": "core.v1.Service",
		"deployment-apps-v1": "apps.v1.Deployment", "poddisruptionbudget-policy-v1": "policy.v1.PodDisruptionBudget"} {
		name = "io.k8s.api." + name
		used := map[string]any{}
		var add func(value any)
		add = func(value any) {
			switch v := value.(type) {
			case []any:
				for _, x := range v {
					add(x)
				}
			case map[string]any:
				ref, _ := v["$ref"].(string)
				to := strings.TrimPrefix(ref, "#/definitions/")
				if ref != "" && used[to] == nil {
					d := maps.Clone(api.Definitions[to])
					if d["properties"] != nil {
						d["additionalProperties"] = false
					}
					used[to] = d
					add(d)
				}
				for _, x := range v {
					add(x)
				}
			}
		}
		root := map[string]any{"$ref": "#/definitions/" + name}
		add(root)
		root["definitions"] = used
		text, err := json.Marshal(root)
		if err != nil || api.Definitions[name] == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file+".json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir + "/{{.ResourceKind}}{{.KindSuffix}}.json"
}

// The manifests of `millrace app deploy` and of deploy/kubernetes are valid for the schemas of Kubernetes, and
// kubeconform sees mistakes in manifests.
func TestKubeconform(t *testing.T) {
	program := testbuild.Peer(t, "kubeconform")
	pattern := schemas(t, filepath.Join(filepath.Dir(program), "swagger.json"))
	dir := t.TempDir()
	names, err := kubernetes.Write(dir, kubernetes.Options{Name: "greet", Image: "registry.example.org/team/greet:v1",
		GRPC: true})
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "helm/") })
	check := func(names ...string) (string, error) {
		args := []string{"-strict", "-summary", "-schema-location", pattern}
		for _, name := range names {
			args = append(args, filepath.Join(dir, name))
		}
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		return string(out), err
	}
	own, err := os.ReadFile("../../deploy/kubernetes/millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), own, 0o600); err != nil {
		t.Fatal(err)
	}
	names = append(names, "own.yaml")
	resources := len(names) + bytes.Count(own, []byte("\n---\n"))
	want := fmt.Sprintf("Valid: %d, Invalid: 0, Errors: 0, Skipped: 0", resources)
	if out, err := check(names...); err != nil || !strings.Contains(out, want) {
		t.Errorf("%v: %s", err, out)
	}
	good, err := os.ReadFile(filepath.Join(dir, "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for old, mistake := range map[string]string{"replicas: 2": "replicas: two", "selector:": "selectors:",
		"maxSurge: 1": "maxSurge: [1]", "cpu: \"1\"": "cpu: [1]", "port: http}": "ports: http}"} {
		bad := strings.Replace(string(good), old, mistake, 1)
		if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := check("bad.yaml"); err == nil || bad == string(good) || !strings.Contains(out, "Invalid: 1") {
			t.Errorf("%s: %s", mistake, out)
		}
	}
}
