package video

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// logLevel is the -loglevel of an ffmpeg whose messages this package parses: "level" puts the level before each
// message, and from "verbose" on ffmpeg names the size of the decoded pictures.
const logLevel = "level+verbose"

// maxKept bounds the kept warnings and errors, in bytes.
const maxKept = 8 << 10

// messages reads ffmpeg's messages with logLevel, line by line, and keeps the last warnings and errors, and the
// description of the input. ffmpeg also reports texts of the source, such as a camera's session description and a
// file's title. These texts are not mistaken for the description: the description comes after the texts, and the last
// match counts.
type messages struct {
	log    func(line string) // gets warnings and errors; or nil
	red    redactor
	script bool // the input is an entry of an unanalysed script, or a feed

	rebuilt atomic.Uint32 // how often ffmpeg has rebuilt its filters

	mu            sync.Mutex
	kept          string // warnings and errors
	cut           bool   // ffmpeg reported that the input ended too early
	keeps         bool   // the last line was kept, and so are its continuation lines
	sdp           bool   // the last message is an RTSP session's description, verbatim
	media         int    // streams offered in the description
	offers        bool   // a stream is video
	format        string // of the input, "" before the input is open
	length        time.Duration
	all           int // streams of the input, of any kind
	codec         string
	fps           float64
	aspect        float64       // of a pixel
	size          [2]int        // of the decoded pictures, before rotation
	latest        [2]int        // the latest size, of a source that has changed its size
	rotated       bool          // rotation by 90 or 270 degrees
	inVideoStream bool          // the last stream was the video stream
	outputs       bool          // the following streams are outputs
	described     bool          // the output with the frames was described
	matrix        string        // of the frames, by ffmpeg's name; "" = BT.601 or unknown
	decode        chan struct{} // closed when the size was reported by the decoder
}

func newMessages(log func(string), red redactor) *messages {
	return &messages{log: log, red: red, decode: make(chan struct{})}
}

var (
	// levelPrefix is the beginning of a message: the reporting components, and the level.
	levelPrefix = regexp.MustCompile(`^((?:\[[^\[\]@]{1,64} @ 0x[0-9a-f]+\] ` +
		`)*)\[(panic|fatal|error|warning|info|verbose)\] ?`)

	// analysisLine matches the warnings about an input that is not analysed; see route.list and route.startArgs.
	analysisLine = regexp.MustCompile(`^\[[a-z0-9_]+ @ 0x[0-9a-f]+\] Codec \([a-z0-9_]+\) not on whitelist ` +
		`'none'|^\[(?:rtsp|ivf|h264|hevc) @ 0x[0-9a-f]+\] (?:Stream #0: not enough frames to estimate rate; |Could ` +
		`not find codec parameters for stream 0 )`)

	outputLine   = regexp.MustCompile(`^Output #[0-9]+, `)
	rawStream    = regexp.MustCompile(`^  Stream #0:0: Video: rawvideo\b.*?, nv12(?:\((.*?)\))?, [0-9]+x[0-9]+\b`)
	inputLine    = regexp.MustCompile(`^Input #0, ([^ ]+), from '`)
	durationLine = regexp.MustCompile(`^  Duration: ([0-9]{2,6}):([0-5][0-9]):([0-5][0-9]\.[0-9]{2}), `)
	streamLine   = regexp.MustCompile(`^  Stream #0:[0-9]+(?:\[0x[0-9a-f]+\])?(?:\([^()]*\))?: (?:(Video): ` +
		`([a-z0-9_]+)(.*)|[A-Z][a-z]+: .*)$`)
	streamRate   = regexp.MustCompile(`, ([0-9]{1,4}(?:\.[0-9]{1,2})?) fps(?:,|$)`)
	streamSize   = regexp.MustCompile(`, ([0-9]{1,5})x([0-9]{1,5})(?: \([0-9]+x[0-9]+\))?(?: \[|,|$)`)
	streamAspect = regexp.MustCompile(` \[SAR ([0-9]{1,9}):([0-9]{1,9}) DAR `)
	rotationLine = regexp.MustCompile(`^      displaymatrix: rotation of (-?[0-9]+\.[0-9]{2}) degrees`)
	graphName    = regexp.MustCompile(`^\[graph 0 input from stream 0:[0-9]+ @ 0x[0-9a-f]+\] $`)
	graphLine    = regexp.MustCompile(`^w:([0-9]{1,5}) h:([0-9]{1,5}) pixfmt:`)
)

// line parses one line. Calls must not overlap.
func (m *messages) line(b []byte) {
	s := string(b)
	m.mu.Lock()
	head := levelPrefix.FindStringSubmatch(s)
	if head == nil { // a continuation of the message before
		switch {
		case m.keeps:
			m.keep(s)
		case m.sdp && strings.HasPrefix(s, "m="):
			m.media++
			m.offers = m.offers || strings.HasPrefix(s, "m=video ")
		}
		m.mu.Unlock()
		return
	}
	text := s[len(head[0]):]
	switch head[2] {
	case "info", "verbose":
		m.keeps = false
		if m.sdp = s == head[0]+"SDP:" && strings.HasPrefix(head[1], "[rtsp @ "); m.sdp {
			m.media, m.offers = 0, false
		}
		m.parse(head[1], text)
		m.mu.Unlock()
		return
	}
	// The times in the list of pictures do not matter.
	m.keeps = !strings.HasPrefix(head[1], "[framecrc @ ") && (!m.script || !analysisLine.MatchString(head[1]+text))
	if !m.keeps {
		m.mu.Unlock()
		return
	}
	m.keep(head[1] + text)
	m.mu.Unlock()
	if m.log != nil {
		m.log(m.red.text(component.ReplaceAllString(namesRefused(head[1]+text), "")))
	}
}

// keep appends a line to the kept lines.
func (m *messages) keep(s string) {
	m.kept += s + "\n"
	if n := len(m.kept); n > maxKept {
		m.kept = strings.ToValidUTF8(m.kept[n-maxKept/2:], "")
	}
	m.cut = m.cut || reportsCutShort(s)
}

// parse parses a message below the level of a warning.
func (m *messages) parse(from, s string) {
	if from != "" {
		// Later messages are about pictures of a changed size.
		if f := graphLine.FindStringSubmatch(s); f != nil && m.format != "" && graphName.MatchString(from) {
			m.latest = [2]int{digits(f[1]), digits(f[2])}
			if closed(m.decode) {
				m.rebuilt.Add(1)
			} else {
				m.size = m.latest
				close(m.decode)
			}
		}
		return
	}
	if f := inputLine.FindStringSubmatch(s); f != nil {
		m.outputs = false
		m.format, m.length, m.all, m.codec, m.fps, m.aspect, m.size, m.rotated, m.inVideoStream = f[1], 0, 0, "", 0, 0,
			[2]int{}, false, false
		if closed(m.decode) {
			m.decode = make(chan struct{})
		}
		return
	}
	if outputLine.MatchString(s) {
		m.outputs = true
		return
	}
	if m.outputs {
		if f := rawStream.FindStringSubmatch(s); f != nil {
			m.described = true
			for word := range strings.SplitSeq(f[1], ", ") {
				if name, _, _ := strings.Cut(word, "/"); lumas[name] != [2]float64{} {
					m.matrix = name
				}
			}
		}
		return
	}
	if f := durationLine.FindStringSubmatch(s); f != nil {
		m.length = seconds(f[3]) + time.Duration(digits(f[2]))*time.Minute + time.Duration(digits(f[1]))*time.Hour
		return
	}
	if f := streamLine.FindStringSubmatch(s); f != nil {
		m.all++
		// ffmpeg reads the first video stream that is no cover picture.
		m.inVideoStream = f[1] != "" && m.codec == "" && !strings.Contains(f[3], "(attached pic)")
		if !m.inVideoStream {
			return
		}
		m.codec = f[2]
		if r := streamRate.FindStringSubmatch(f[3]); r != nil {
			m.fps = exactRate(r[1])
		}
		if r := streamAspect.FindStringSubmatch(f[3]); r != nil {
			m.aspect = rate(r[1] + "/" + r[2])
		}
		if r := streamSize.FindStringSubmatch(f[3]); r != nil {
			m.size = [2]int{digits(r[1]), digits(r[2])}
		}
		return
	}
	if f := rotationLine.FindStringSubmatch(s); f != nil && m.inVideoStream {
		degrees, _ := strconv.ParseFloat(f[1], 64)
		m.rotated = m.rotated || quarterTurn(degrees)
	}
}

// digits parses digits; a regular expression has bounded their number.
func digits(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// exactRate returns the frame rate before ffmpeg's rounding to two digits: 29.97 is 30000/1001.
func exactRate(s string) float64 {
	fps := rate(s)
	for _, n := range []float64{24, 30, 48, 60, 120} {
		if ntsc := n * 1000 / 1001; fps-ntsc > -0.006 && fps-ntsc < 0.006 {
			return ntsc
		}
	}
	return fps
}

// latestSize returns the current size of the decoded pictures, after rotation.
func (m *messages) latestSize() size {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rotated {
		return size{m.latest[1], m.latest[0]}
	}
	return size{m.latest[0], m.latest[1]}
}

// frameMatrix returns the matrix of the frames, and whether ffmpeg has described the frames: ffmpeg does so before the
// first frame.
func (m *messages) frameMatrix() (name string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.matrix, m.described
}

// warnings returns the warnings and errors so far.
func (m *messages) warnings() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept
}

// cutShort reports whether ffmpeg said that the input ended too early.
func (m *messages) cutShort() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut
}

// waitForSize waits until the size of the decoded pictures is known, at most for d or until ffmpeg has ended.
func (m *messages) waitForSize(d time.Duration, ended <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		m.mu.Lock()
		decode := m.decode
		m.mu.Unlock()
		select {
		case <-decode:
		case <-ended:
			return
		case <-t.C:
			return
		}
		m.mu.Lock()
		same := decode == m.decode
		m.mu.Unlock()
		if same {
			return
		}
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// noVideo returns why an opened input is no video; "" for a video or an input that was not opened.
func (m *messages) noVideo() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.format == "tty":
		return "it is a text file"
	case m.format == "" && m.media > 0 && !m.offers:
		return "it is rtsp with sound, subtitles or data only"
	case m.format == "" || m.codec != "":
		return ""
	case m.all == 0:
		return "it has no streams"
	}
	return "it is " + m.format + " with sound, subtitles or data only"
}

// info returns the description of the input by ffmpeg.
func (m *messages) info() Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := Info{SourceWidth: m.size[0], SourceHeight: m.size[1], Codec: m.codec, FPS: m.fps, PixelAspect: m.aspect,
		Duration: m.length, HasVideo: true}
	if m.rotated {
		i.SourceWidth, i.SourceHeight = i.SourceHeight, i.SourceWidth
		i.PixelAspect = rotatedAspect(i.PixelAspect)
	}
	if m.all == 1 && m.format != "mpegts" { // sound may make the length longer; MPEG-TS: see source.classify
		i.videoLength = m.length
	}
	return i
}
