// Package kubernetes writes manifests that run the image of an application in a cluster: plain YAML for kubectl, and
// the values of a Helm chart.
//
// The package owns what the manifests say. It must not know how images are made, nor reach a cluster.
package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

// Options say what the manifests run.
type Options struct {
	Name  string // of all objects: at most 50 lower-case letters, digits and dashes
	Image string // REGISTRY/NAME:TAG, or with a digest
	GRPC  bool   // the image serves gRPC on port 8001, too
}

// nameForm is the form of a label of DNS, which the name of a service has.
var nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$`)

// mark is the first line of files that Write may replace.
const mark = "# Written by millrace app deploy --kubernetes"

// Write writes the manifests into a folder, and returns the names of the files. Files of other programs are kept.
func Write(dir string, o Options) ([]string, error) {
	if !nameForm.MatchString(o.Name) {
		return nil, fmt.Errorf("%q is no name of a service of Kubernetes: want at most 50 lower-case letters, digits "+
			"and dashes, with a letter first", o.Name)
	}
	var names []string
	texts := map[string][]byte{}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		old, err := os.ReadFile(path)
		if err == nil && !bytes.HasPrefix(old, []byte(mark)) {
			return nil, fmt.Errorf("%s is of another program: name another folder", path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		text, err := render(f.text, o)
		if err != nil {
			return nil, err
		}
		names, texts[path] = append(names, f.name), text
	}
	for path, text := range texts {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, text, 0o666)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func render(text string, o Options) ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{"quote": strconv.Quote}).Parse(mark + ".\n" + text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, o); err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n"), nil
}

// files are the files of a folder. `kubectl apply -f FOLDER` reads all files but not the folder of the values.
var files = []struct{ name, text string }{
	{"configmap.yaml", `# Settings of the server, as variables of docs/config.md. hosts are the names by which clients call the server.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{.Name}}
  labels: {app.kubernetes.io/name: {{.Name}}}
data:
  MILLRACE_HOSTS: "{{.Name}},{{.Name}}.*"
  MILLRACE_LOG_FORMAT: json
`},
	{"deployment.yaml", `# The keys of clients and other secrets are variables in the Secret {{.Name}}:
#   kubectl create secret generic {{.Name}} --from-file=MILLRACE_API_KEY=key.txt
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{.Name}}
  labels: {app.kubernetes.io/name: {{.Name}}}
spec:
  replicas: 2
  selector:
    matchLabels: {app.kubernetes.io/name: {{.Name}}}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels: {app.kubernetes.io/name: {{.Name}}}
    spec:
      automountServiceAccountToken: false
      # More than the setting drain (10 s).
      terminationGracePeriodSeconds: 30
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: millrace
          image: {{quote .Image}}
          envFrom:
            - configMapRef: {name: {{.Name}}}
            - secretRef: {name: {{.Name}}}
          ports:
            - {name: http, containerPort: 8000}
{{- if .GRPC}}
            - {name: grpc, containerPort: 8001}
{{- end}}
          startupProbe:
            httpGet: {path: /health/startup, port: http}
            periodSeconds: 2
            failureThreshold: 150
          livenessProbe:
            httpGet: {path: /v2/health/live, port: http}
          readinessProbe:
            httpGet: {path: /v2/health/ready, port: http}
            periodSeconds: 2
          # The memory has room for the setting memory.budget (1 GiB), the models and their programs.
          resources:
            requests: {cpu: "1", memory: 2Gi}
            limits: {memory: 4Gi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: state, mountPath: /var/lib/millrace}
      volumes:
        - {name: tmp, emptyDir: {}}
        - {name: state, emptyDir: {}}
`},
	{"poddisruptionbudget.yaml", `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{.Name}}
  labels: {app.kubernetes.io/name: {{.Name}}}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app.kubernetes.io/name: {{.Name}}}
`},
	{"service.yaml", `apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
  labels: {app.kubernetes.io/name: {{.Name}}}
spec:
  selector: {app.kubernetes.io/name: {{.Name}}}
  ports:
    - {name: http, port: 8000, targetPort: http}
{{- if .GRPC}}
    - {name: grpc, port: 8001, targetPort: grpc}
{{- end}}
`},
	{"helm/values.yaml", `# The values of the manifests, for a Helm chart.
name: {{.Name}}
image: {{quote .Image}}
replicas: 2
grpc: {{.GRPC}}
secret: {{.Name}}
settings:
  MILLRACE_HOSTS: "{{.Name}},{{.Name}}.*"
  MILLRACE_LOG_FORMAT: json
resources:
  requests: {cpu: "1", memory: 2Gi}
  limits: {memory: 4Gi}
`},
}
