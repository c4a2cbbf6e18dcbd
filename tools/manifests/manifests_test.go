// Package manifests checks the manifests for Kubernetes with the types of Kubernetes' own API.
package manifests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"millrace/apps/kubernetes"
	"millrace/internal/yamltext"
)

// strict reads YAML into a type of Kubernetes, which must know every field.
func strict(data []byte, out any) error {
	var read any
	if err := yamltext.Decode(data, yamltext.MaxSettings, &read, true); err != nil {
		return err
	}
	text, err := json.Marshal(read)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(out)
}

func decode[T any](t *testing.T, dir, name string) (out T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := strict(data, &out); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return out
}

// The manifests have known fields only, name each other, and run the image without rights and without secrets.
func TestManifests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "k8s")
	o := kubernetes.Options{Name: "greet", Image: "registry.example.org/team/greet:v1", GRPC: true}
	names, err := kubernetes.Write(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != len(names) {
		t.Errorf("%v, %v, want %v", list, err, names)
	}
	config := decode[corev1.ConfigMap](t, dir, "configmap.yaml")
	service := decode[corev1.Service](t, dir, "service.yaml")
	budget := decode[policyv1.PodDisruptionBudget](t, dir, "poddisruptionbudget.yaml")
	d := decode[appsv1.Deployment](t, dir, "deployment.yaml")
	for kind, of := range map[string]struct{ got, version string }{"ConfigMap": {config.Kind, config.APIVersion},
		"Service": {service.Kind, service.APIVersion}, "PodDisruptionBudget": {budget.Kind, budget.APIVersion},
		"Deployment": {d.Kind, d.APIVersion}} {
		want := map[string]string{"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}[kind]
		if want == "" {
			want = "v1"
		}
		if of.got != kind || of.version != want {
			t.Errorf("%+v, want %s %s", of, want, kind)
		}
	}
	pod := d.Spec.Template
	for _, labels := range []map[string]string{d.Spec.Selector.MatchLabels, service.Spec.Selector,
		budget.Spec.Selector.MatchLabels} {
		for k, v := range labels {
			if len(labels) != 1 || pod.Labels[k] != v {
				t.Errorf("a selector %v does not find the pods %v", labels, pod.Labels)
			}
		}
	}
	c := pod.Spec.Containers[0]
	if c.Image != o.Image || c.EnvFrom[0].ConfigMapRef.Name != config.Name || c.EnvFrom[1].SecretRef.Name != o.Name {
		t.Errorf("%+v", c)
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.Name == probe.HTTPGet.Port.String()
		}) {
			t.Errorf("a probe: %+v", probe)
		}
	}
	for _, p := range service.Spec.Ports {
		if !slices.ContainsFunc(c.Ports, func(q corev1.ContainerPort) bool { return q.Name == p.TargetPort.String() }) {
			t.Errorf("the service has the port %+v", p)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("no volume %s", m.Name)
		}
	}
	s, p := c.SecurityContext, pod.Spec.SecurityContext
	if !*p.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Contains(s.Capabilities.Drop, "ALL") || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%+v, %+v", s, p)
	}
	values := decode[map[string]any](t, dir, "helm/values.yaml")
	if values["image"] != o.Image {
		t.Errorf("%v", values)
	}
	if _, err := kubernetes.Write(dir, o); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "service.yaml"), []byte("kind: Service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.Write(dir, o); err == nil || !strings.Contains(err.Error(), "of another program") {
		t.Errorf("a file of another program: %v", err)
	}
	o.Name = "Greet"
	if _, err := kubernetes.Write(t.TempDir(), o); err == nil {
		t.Error("a name with an upper-case letter")
	}
}

// Strict decoding sees a field that Kubernetes does not have.
func TestStrict(t *testing.T) {
	var d appsv1.Deployment
	if err := strict([]byte("spec: {replica: 2}"), &d); err == nil {
		t.Error("an unknown field is accepted")
	}
}
