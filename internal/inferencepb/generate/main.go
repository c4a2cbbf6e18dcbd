// Command generate writes the Go code of the .proto files in the working directory. go.mod fixes the versions of the
// compiler and the plug-ins, so that every machine generates the same code.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// Plug-ins, each with its options.
var plugins = []struct{ tool, options string }{
	{"google.golang.org/protobuf/cmd/protoc-gen-go", "paths=source_relative"},
	{"google.golang.org/grpc/cmd/protoc-gen-go-grpc", "paths=source_relative,require_unimplemented_servers=true"},
}

func main() {
	if err := generate(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context) error {
	// Plug-ins require that a file comes after its imports.
	names := []string{"model_config.proto", "grpc_service.proto"}
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	var described []*descriptorpb.FileDescriptorProto
	for _, f := range files {
		described = append(described, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, p := range plugins {
		if err := run(ctx, p.tool, &pluginpb.CodeGeneratorRequest{
			FileToGenerate: names,
			Parameter:      proto.String(p.options),
			ProtoFile:      described,
		}); err != nil {
			return fmt.Errorf("%s: %w", p.tool, err)
		}
	}
	return nil
}

// run passes the request to a plug-in and writes the files of its answer.
func run(ctx context.Context, tool string, request *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", tool)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.GetError())
	}
	for _, f := range answer.File {
		if err := os.WriteFile(filepath.Base(f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
