// Command task is the container of the tests. The text of its input says what the container does.
package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 { // a process of "fork"
		time.Sleep(time.Hour)
	}
	var files, texts []string
	_ = filepath.WalkDir("/input", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files, texts = append(files, path), append(texts, string(b))
		return err
	})
	word, rest, _ := strings.Cut(strings.Join(texts, ""), " ")
	fmt.Println("the input:", files)
	switch word {
	case "fail":
		fmt.Fprintln(os.Stderr, "a reason:", rest)
		os.Exit(3)
	case "hang":
		fmt.Println("progress 1/3 pages")
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		fmt.Println("it hangs")
		<-stop
		fmt.Println("it was asked to end")
		os.Exit(4)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "fill":
		for i := 0; ; i++ {
			_ = os.WriteFile(fmt.Sprintf("/output/%d", i), make([]byte, 1<<20), 0o644)
		}
	case "fork":
		n := 0
		for ; exec.Command(os.Args[0], "wait").Start() == nil; n++ {
		}
		write("forked", fmt.Sprint(n))
	case "link":
		_ = os.Symlink("/etc/passwd", "/output/link")
	case "nothing":
	case "several":
		write("a.txt", "1")
		_ = os.Mkdir("/output/b", 0o755)
		write("b/c.txt", "2")
	case "memory":
		var kept [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			kept = append(kept, b)
		}
	case "about":
		about := []string{fmt.Sprint("user ", os.Getuid(), ":", os.Getgid())}
		if c, err := net.DialTimeout("tcp", rest, time.Second); err == nil {
			about = append(about, "network "+c.RemoteAddr().String())
		}
		for _, name := range []string{"/x", "/input/x", "/model/x", "/task"} {
			if os.WriteFile(name, nil, 0o644) == nil {
				about = append(about, "can write "+name)
			}
		}
		if err := os.WriteFile("/tmp/x", nil, 0o644); err != nil {
			about = append(about, err.Error())
		}
		status, _ := os.ReadFile("/proc/self/status")
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "CapBnd") || strings.HasPrefix(line, "NoNewPrivs") {
				about = append(about, strings.Join(strings.Fields(line), " "))
			}
		}
		model, _ := os.ReadFile("/model/weights")
		write("about.txt", strings.Join(append(about, "model "+string(model)), "\n"))
	default:
		write("result.txt", strings.ToUpper(strings.Join(texts, "")))
	}
}

func write(name, text string) {
	if err := os.WriteFile("/output/"+name, []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
