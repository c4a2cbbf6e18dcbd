package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/config"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// completeTime is the time limit for asking a server during a completion, because the shell waits.
var completeTime = 500 * time.Millisecond // the tests have more

// completion returns a shell's completions of an argument or a flag.
type completion = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// completeArgs completes each argument with the function for its position; the last function completes all further
// arguments.
func completeArgs(of ...completion) completion {
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return of[min(len(args), len(of)-1)](c, args, word)
	}
}

func completeNothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func completePictures(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return pictureEndings, cobra.ShellCompDirectiveFilterFileExt
}

// completeModels completes with the models of the running server.
func completeModels(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := askServer(c, modelNames)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeLoadable completes with names that the running server can load: known models and kinds of workers.
func completeLoadable(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := askServer(c, modelNames)
	return withKinds(names), cobra.ShellCompDirectiveNoFileComp
}

// withKinds returns names and the kinds of workers, each once.
func withKinds(names []string) []string {
	for _, k := range workers.Kinds() {
		if !slices.Contains(names, k.Name) {
			names = append(names, k.Name)
		}
	}
	return names
}

// completeStreams completes with the server streams of the running server.
func completeStreams(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := askServer(c, func(ctx context.Context, cl *client.Client) (names []string, err error) {
		list, err := cl.ServerStreams(ctx)
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names, err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// askServer calls ask with a client for the server of the command's flags, within completeTime.
func askServer(c *cobra.Command, ask func(context.Context, *client.Client) ([]string, error)) ([]string, error) {
	r := &remote{envToken: os.Getenv(config.EnvToken)}
	for name, to := range map[string]*string{"addr": &r.addr, "ca": &r.ca, "fingerprint": &r.fingerprint,
		"token": &r.token, "token-file": &r.tokenFile} {
		if f := c.Flags().Lookup(name); f != nil {
			*to = f.Value.String()
		}
	}
	cl, err := r.dial()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.Context(), completeTime)
	defer cancel()
	return ask(ctx, cl)
}

// modelNames returns the names in a server's index, each once.
func modelNames(ctx context.Context, cl *client.Client) (names []string, err error) {
	rows, err := cl.Index(ctx)
	for _, r := range rows {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names, err
}

// completeModelSpec completes a value of --model of a server, NAME=SOURCE,key=value...:
// the kinds of workers and files behind the name, and then keys of settings.
func completeModelSpec(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	name, spec, ok := strings.Cut(word, "=")
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	comma := strings.LastIndexByte(spec, ',')
	if comma < 0 {
		for _, k := range workers.Kinds() {
			words = append(words, name+"="+k.Name)
		}
		return words, cobra.ShellCompDirectiveNoSpace
	}
	front := name + "=" + spec[:comma+1]
	source, _, _ := strings.Cut(spec, ",")
	if strings.Contains(spec[comma:], "=") { // a value
		return nil, cobra.ShellCompDirectiveNoSpace
	}
	for _, s := range settingsOf(source) {
		if s.Path == "name" || s.Path == "source" {
			continue // already in front
		}
		words = append(words, front+s.Path+"=")
	}
	return words, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeParameters completes key=value behind the name of a model to load.
func completeParameters(_ *cobra.Command, args []string, word string) (words []string, _ cobra.ShellCompDirective) {
	if strings.Contains(word, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range settingsOf(args[0]) {
		words = append(words, s.Path+"=")
	}
	return words, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// settingsOf returns the settings of a model and of the kind of its source.
func settingsOf(source string) []config.Setting {
	all := config.ModelSettings()
	kind, _, err := workers.KindOf(source)
	if err != nil {
		return all
	}
	if k, ok := workers.Lookup(kind); ok {
		all = append(all, config.KindSettings(k)...)
	}
	return all
}

// completeWords completes with words.
func completeWords(words ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// flagWords are the completions of flags' values, in every command with these flags. Other flags take files.
var flagWords = map[string]completion{
	"addr": completeNothing, "fingerprint": completeNothing, "version": completeNothing,
	"policy": completeWords(string(stream.Latest), string(stream.Every)), "priority": completeWords("high", "normal",
		"low"),
	"format":    completeWords(exampleFormats...),
	"protocol":  completeWords("ws", "v1", "rest"),
	"log-level": completeWords("debug", "info", "warn", "error"),
}

// completeFlags sets the completions of flags of a command and its subcommands.
func completeFlags(c *cobra.Command) {
	for name, words := range flagWords {
		if c.Flags().Lookup(name) != nil {
			must(c.RegisterFlagCompletionFunc(name, words))
		}
	}
	if f := c.Flags().Lookup("model"); f != nil {
		models := completeModels
		if c.Flags().Lookup("addr") == nil || c.Flags().Lookup("config") != nil {
			models = completeModelSpec
		}
		must(c.RegisterFlagCompletionFunc("model", models))
	}
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// suggestModel returns err, with the nearest model name if err says that the server does not know the model.
func suggestModel(ctx context.Context, cl *client.Client, model string, err error) error {
	var e *coded.Error
	if !errors.As(err, &e) || e.Code != coded.NotFound || model == "" {
		return err
	}
	names, indexErr := modelNames(ctx, cl)
	if indexErr != nil || slices.Contains(names, model) {
		return err
	}
	hint := setting.Suggest(model, names)
	if hint == "" {
		return err
	}
	return &coded.Error{Code: e.Code, Field: "model", Msg: "\"" + model + "\" is not loaded" + hint, Err: err}
}

// suggestStream returns err, with the nearest stream name and all names if err says that the server does not know the
// stream.
func suggestStream(ctx context.Context, cl *client.Client, name string, err error) error {
	var e *coded.Error
	if !errors.As(err, &e) || e.Code != coded.NotFound {
		return err
	}
	list, listErr := cl.ServerStreams(ctx)
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	hint := setting.Suggest(name, names)
	if listErr != nil || hint == "" || slices.Contains(names, name) {
		return err
	}
	all := "; millrace streams lists them"
	if len(names) <= mostNames {
		all = "; the streams are " + strings.Join(names, ", ")
	}
	return &coded.Error{Code: e.Code, Msg: fmt.Sprintf("no stream has the name %q%s%s", name, hint, all), Err: err}
}

// mostNames is the largest number of names in an error.
const mostNames = 10

// suggestLoad returns err, with the nearest loadable name if err says that the server does not know the name.
func suggestLoad(ctx context.Context, cl *client.Client, name string, err error) error {
	var e *coded.Error
	if !errors.As(err, &e) || e.Code != coded.NotFound {
		return err
	}
	names, indexErr := modelNames(ctx, cl)
	if indexErr != nil {
		return err
	}
	// The index has the failed load as well.
	names = slices.DeleteFunc(withKinds(names), func(n string) bool { return n == name })
	if hint := setting.Suggest(name, names); hint != "" {
		return &coded.Error{Code: e.Code, Field: e.Field, Msg: e.Msg + hint, Err: err}
	}
	return err
}
