package video

import "strings"

// timeline returns the filter that makes the times of frames rise, whatever the source's times. Without the filter,
// ffmpeg would drop each frame not later than the frame before, so a single wrong time far ahead would end the video.
//
// A frame keeps a plausible time. In a live source, time may advance at most by the real time since the arrival of
// the last frame with a plausible time, plus 2.5 frame intervals or 0.25 s, because frames arrive together after a
// pause of the network. Other sources are read as fast as possible, and time may advance by an hour. A frame with a
// missing or implausible time gets its time of arrival if the source is live, else the time of the frame before plus
// one interval. When the next frame continues the implausible time, the source's clock was set: times continue from
// there.
func (r *route) timeline() string {
	e := timelineExpr
	switch {
	case r.rtsp():
		e = strings.ReplaceAll(e, "UNCERTAIN", "(isnan(PTS)+lt(PTS,30/TB))") // half of rtspOffset
	default:
		e = strings.ReplaceAll(e, "UNCERTAIN", "0")
	}
	with := ofRecording
	if isLive(r.scheme) {
		with = ofLive
	}
	return "setpts='" + with.Replace(e) + "'"
}

var (
	ofLive = strings.NewReplacer(
		"SINCE", "(RTCTIME-ld(4))/1e6/TB+max(2.5*ld(2),0.25/TB)",
		"STEP", "(RTCTIME-ld(0))/1e6/TB",
		"BACK", "max(2.5*ld(2),0.25/TB)", "FORTH", "(RTCTIME-ld(0))/1e6/TB+max(2.5*ld(2),0.25/TB)",
		" ", "", "\t", "", "\n", "")
	ofRecording = strings.NewReplacer("SINCE", "3600/TB", "STEP", "ld(2)", "BACK", "0", "FORTH", "3600/TB", " ", "",
		"\t", "", "\n", "")
)

// timelineExpr is an ffmpeg expression with these registers: 0 the arrival of the frame before, in µs; 1 the offset
// added to plausible times; 2 the frame interval; 3 the last plausible time and 4 the arrival of its frame; 5 whether
// RTSP times are still unknown, see route.startArgs; 6 the result; 7 whether the time before was implausible. SINCE
// is how far plausible times may exceed register 3, FORTH how far they may exceed an implausible time, and BACK how
// far they may precede the last result. STEP is the interval between a frame and a following frame without a
// plausible time.
const timelineExpr = `
if(isnan(PREV_OUTPTS),
	st(1,0); st(2,if(gte(FR,1)*lte(FR,120),1/FR,0.04)/TB); st(3,PTS); st(4,RTCTIME); st(5,UNCERTAIN); st(7,0); st(6,if(isnan(PTS),0,PTS)),
if(ld(5),
	st(6,trunc(PREV_OUTPTS+max(1,ld(2)))); if(UNCERTAIN,0, st(5,0); st(1,ld(6)-PTS); st(3,PTS); st(4,RTCTIME)),
if(lte(PTS-ld(3),SINCE)*gt(PTS+ld(1),PREV_OUTPTS-BACK),
	st(6,if(gt(PTS+ld(1),PREV_OUTPTS),PTS+ld(1),trunc(PREV_OUTPTS+max(1,STEP/2))));
	if(eq(PREV_INPTS,ld(3))*gt(PTS,ld(3)),st(2,PTS-ld(3)),0); st(3,PTS); st(4,RTCTIME); st(7,0),
	st(6,trunc(PREV_OUTPTS+max(1,STEP)));
	if(ld(7)*gt(PTS,PREV_INPTS)*lte(PTS-PREV_INPTS,FORTH), st(1,ld(6)-PTS); st(3,PTS); st(4,RTCTIME); st(7,0), st(7,1))
)));
st(0,RTCTIME); ld(6)`
